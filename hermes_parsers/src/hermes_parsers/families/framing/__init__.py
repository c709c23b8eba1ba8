"""What models write around calls and answers, which is no content: brackets, code fences, the marks of an answer."""
