"""What is installed, and which plugins of it the settings admit; read from metadata, no plugin is imported."""
