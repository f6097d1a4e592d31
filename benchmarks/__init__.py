"""What voda is measured by: speed (`python -m benchmarks`) and fidelity (`python -m benchmarks.fidelity`)."""
