"""Formats of Google's Gemma, whose calls are written as `call:f{a:1}`."""
