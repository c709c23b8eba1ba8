"""Model clients: OpenAI-compatible chat, and the models `oracle` and `nop`, which need no server.

Import the module you need (`hermes_models.factory`, …); this package itself imports nothing.
"""
