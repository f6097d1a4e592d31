"""The words of the house: frozen values, no I/O, no third-party library but msgspec."""
