"""Serve trained voices: OpenAI's speech API and the Wyoming protocol, one thread that speaks for all clients."""
