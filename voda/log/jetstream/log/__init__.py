"""Events as messages of a stream: written, indexed, read and checked."""
