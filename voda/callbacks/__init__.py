"""Callbacks that report the epochs of Keras, PyTorch Lightning and Hugging Face trainers.

Rule: a module imports its framework when its one class, VodaCallback, is first used, never before.
"""
