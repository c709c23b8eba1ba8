"""The installed plugins and which of them the settings admit; read from metadata, no plugin is imported."""
