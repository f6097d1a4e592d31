"""Processes of one replica: started by a shim, found again after a crash."""
