"""The words of a report."""

from labelgrove.experiments.report.look import duration, percent, shortened


def test_numbers_and_texts_in_words() -> None:
    times = [duration(seconds) for seconds in (0.012, 12.3, 75, 9000)]
    assert times == ["12 ms", "12.3 s", "1 min 15 s", "2 h 30 min"]
    shares = percent(0.5), percent(0.012, signed=True), percent(float("nan"))
    assert shares == ("50.00", "+1.20", "–")
    assert shortened("one  two three", 8) == "one two…"
    assert shortened(" one  two ", 8) == "one two"
