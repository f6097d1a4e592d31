"""The log: facts, their envelope and codec (pure), and the stores that keep them (shell)."""
