"""The Gemini API (`generateContent`) as an upstream: plans to requests, answers to deltas."""
