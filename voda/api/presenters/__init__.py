"""From the state to the records that travel over HTTP; pure."""
