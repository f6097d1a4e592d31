"""The API server: api (calls), reflector (list and watch), transport, credentials, decoding, responses, errors."""
