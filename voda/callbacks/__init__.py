"""Callbacks that report the epochs of `keras`, PyTorch `lightning` and Hugging Face `transformers` trainers.

`_distributed` holds what they share. Rule: a module imports its framework when its one
class, VodaCallback, is first used, never before.
"""
