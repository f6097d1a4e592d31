"""Jobs that need no GPU: `workers` plans them beside all others, `outranked` takes from them what goes before them."""
