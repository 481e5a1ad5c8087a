"""The stages that every tool call goes through; `chain` holds their order."""
