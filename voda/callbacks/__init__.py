"""Callbacks that report the epochs of Keras, PyTorch Lightning and Hugging Face trainers.

Rule: a framework is imported when its callback is asked for, never before; each module has one class, VodaCallback.
"""
