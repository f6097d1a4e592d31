"""Jobs as processes of this Linux machine."""
