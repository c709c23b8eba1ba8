"""Files and trees: read, written, packed and unpacked."""
