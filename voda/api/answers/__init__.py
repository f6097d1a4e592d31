"""What is known, as the records that travel over HTTP; pure."""
