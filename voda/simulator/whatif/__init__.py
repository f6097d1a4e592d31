"""What if another policy had decided: jobs as they stood, their speeds in hindsight, and both outcomes compared."""
