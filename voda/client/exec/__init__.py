"""Commands beside replicas: `session` carries their input and output, over the frames that `websocket` knows."""
