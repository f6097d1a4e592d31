"""Callbacks that report the epochs of `keras`, PyTorch `lightning` and Hugging Face `transformers` trainers.

`_distributed` tells each of them how many processes train together. Rule: a module imports its framework when its one
class, VodaCallback, is first used, never before.
"""
