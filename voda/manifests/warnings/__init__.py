"""What a manifest asks for that voda or a cluster does not honour."""
