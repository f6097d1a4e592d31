"""The Cluster port and its adapters."""
