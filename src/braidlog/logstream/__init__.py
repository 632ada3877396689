"""One replica of a log stream, without input and output."""
