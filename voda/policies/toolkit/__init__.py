"""What policies are made of: order, shares, estimates, reasons."""
