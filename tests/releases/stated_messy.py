"""What anybody knows of the messy table (`tests.data.messy`) without a look at its records."""

from tests.data.messy import SEVERITY, WARDS

CODES = sorted({code for *_, codes in WARDS.values() for code in codes.split()})

KNOWN = {
    "admitted": {"lower": "2022-01-01", "upper": "2023-12-31", "fill": "2023-01-01"},
    "discharged": {"lower": "2022-01-01", "upper": "2024-04-01", "fill": "2023-01-01"},
    "date of birth": {"lower": "1920-01-01", "upper": "2006-01-01", "fill": "1960-01-01"},
    "time of admission": {"lower": "00:00", "upper": "23:59", "fill": "12:00"},
    "age": {"lower": 18, "upper": 100, "fill": 60},
    "sex": {"categories": ["F", "M"], "fill": "F"},
    "ward": {"categories": list(WARDS), "fill": "General medicine"},
    "diagnosis": {"categories": [*CODES, "(other)"], "fill": "(other)"},
    "severity": {"categories": list(SEVERITY), "fill": "mild"},
    "pain": {"lower": 0, "upper": 10, "fill": 3},
    "smoker": {"categories": ["no", "yes"], "fill": "no"},
    "diabetic": {"categories": ["N", "Y"], "fill": "N"},
    "weight_kg": {"lower": 30, "upper": 200, "fill": 75, "scale": 15},
    "height_cm": {"lower": 130, "upper": 210, "fill": 170, "scale": 10},
    "bmi": {"lower": 10, "upper": 60, "fill": 25},
    "saturation": {"lower": 60, "upper": 100, "fill": 96},
    "crp": {"lower": 0, "upper": 400, "fill": 10},
    "troponin": {"lower": 0, "upper": 50, "fill": 0.01},
    "heart_rate": {"lower": 30, "upper": 200, "fill": 75},
    "length_of_stay": {"lower": 0, "upper": 100, "fill": 4},
    "monthly income": {"lower": 0, "upper": 10000, "fill": 2500},
}
"""By column what stands in the place of the nulls of a draft."""


def filled_in(form):
    """The form of `drjax release schema`, every entry stated: kinds and formats are those that were drafted."""
    stated = {}
    for name, entry in form.items():
        draft = entry["draft"]
        stated[name] = {"stated": {**draft, **KNOWN[name]} if name in KNOWN else draft, "seen": entry["seen"]}
    return stated
