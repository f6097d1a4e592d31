"""Torture of the real thing: voda, its log and its clients as processes that are killed, stopped and cut off."""
