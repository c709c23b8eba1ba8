"""Reading and writing what stands inside of a call, by the template's kinds of content."""
