"""The tool server: runs external tools with their secrets, over HTTP or in the calling process."""
