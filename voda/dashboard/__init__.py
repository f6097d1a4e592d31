"""The page that shows a cluster in a browser: built from `web/` by `make web`, served as it is."""
