"""Functions that agents are given, and what checkpoints/tandem-tiny was trained to do with them."""

from decimal import Decimal

WEATHER_QUESTION = "What's the weather in Beijing?"
WEATHER_ANSWER = "The weather in Beijing is 22°C and sunny."
TIMER_QUESTION = "Set a timer for 25 minutes."
TIMER_ANSWER = "The timer is set to 25 minutes."
BOTH_QUESTION = "What's the weather in Paris? Set a timer for 7 minutes."
BOTH_ANSWER = "The weather in Paris is 22°C and sunny. The timer is set to 7 minutes."

PERCENT, NUMBER = 37, 2496
SUM_QUESTION = f"Solve this problem step by step: What is {PERCENT}% of {NUMBER}?"
SUM_ANSWER = f"{PERCENT}% of {NUMBER} is {Decimal(PERCENT * NUMBER) / 100}."


class Tools:
    """Two functions that write down how they are called."""

    def __init__(self):
        self.calls = []

    def get_weather(self, location: str, unit: str = "celsius") -> str:
        """Get the current weather for a location"""
        self.calls.append(("get_weather", location))
        return f"The weather in {location} is 22°C and sunny."

    def set_timer(self, minutes: int) -> str:
        """Set a timer"""
        self.calls.append(("set_timer", minutes))
        return "ok"
