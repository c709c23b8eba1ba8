"""Model clients: OpenAI-compatible chat, three token-level protocols, and models that are part of the package.

Import the module you need (`hermes_models.factory`, …); this package itself imports nothing.
"""
