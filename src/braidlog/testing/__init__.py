"""What programs that use the log need for their own tests."""
