"""The client of OpenAI-compatible servers, and what all clients of model servers share."""
