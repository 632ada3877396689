"""Programs that show how Braidlog is used; most are one file to run as it is."""
