"""Answers that go on: streams of events and output, the present moment for all who look, and commands that run."""
