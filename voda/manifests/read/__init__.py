"""From a manifest's text to typed parts: YAML and JSON, limits, validation."""
