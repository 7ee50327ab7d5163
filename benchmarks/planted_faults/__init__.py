"""Drafts with one fault each, on the real server: who names the fault, and what it costs?"""
