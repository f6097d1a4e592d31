"""What a person gets to see of a simulation: a table, results.json and a page with pictures."""
