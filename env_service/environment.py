"""The game's tools: an agent at an unknown street corner looks, walks, pins candidates on a map, guesses
once.

Before the end a tool may answer from its arguments, the picture and the frames' spacing alone: nothing that a
pin, a map or a name says depends on how close it is to the truth.
"""

from dataclasses import replace

from env_service.episode import Guess, Result
from env_service.game import worth
from env_service.geodesy import haversine_km
from env_service.maps import render_map
from env_service.models import (
    Confidence,
    CountryName,
    Direction,
    FieldOfView,
    Heading,
    Label,
    Latitude,
    Longitude,
    Meters,
    Pitch,
    Reasoning,
    Response,
    Span,
    Turn,
)
from env_service.observing import Shown
from env_service.parsing import ParseFailure, parse_guess
from env_service.play import EpisodeEnvironment
from env_service.scoring import verdict
from env_service.toolbox import tool


class GeoGuessrEnvironment(EpisodeEnvironment):
    """The eleven tools. A subclass that adds a method marked with `@tool` adds a tool everywhere."""

    @tool(op="look", cost=0.01, needs=("look",))
    def look(self, heading_deg: Heading, pitch_deg: Pitch = 0.0, fov_deg: FieldOfView = 90.0) -> Shown:
        """Turn the camera to an absolute compass heading and see the view from there.

        Args:
            heading_deg: Compass heading in degrees, clockwise: 0 is true north, 90 east.
            pitch_deg: Degrees above (positive) or below the horizon.
            fov_deg: Field of view in degrees; smaller shows less, larger.
        """
        return self._aimed(heading_deg, pitch_deg, fov_deg)

    @tool(op="pan", cost=0.01, needs=("look",))
    def pan(self, delta_deg: Turn) -> Shown:
        """Turn the camera relative to where it looks now and see the view.

        Args:
            delta_deg: Degrees to turn, positive to the right, negative to the left.
        """
        return self._aimed(self._now.pose.heading_deg + delta_deg)

    @tool(op="zoom", cost=0.01, needs=("zoom",))
    def zoom(self, fov_deg: FieldOfView) -> Shown:
        """Change the field of view without turning, to read signs and plates or to see more.

        Args:
            fov_deg: Field of view in degrees, 10 (closest) to 120 (widest).
        """
        return self._aimed(fov_deg=fov_deg)

    @tool(op="move", cost=0.05, needs=("move",))
    def move(self, direction: Direction, meters: Meters = 10.0) -> Shown:
        """Walk along the captured drive and see the view from there; there are only so many captured
        positions.

        Args:
            direction: "forward" in the order of the drive, or "backward".
            meters: How far to walk; the nearest captured position is taken, at least one further on.
        """
        episode, task = self._now, self._playing
        backend = self.game.splits[self._split].imagery
        walked = backend.move(task, episode.pose.frame_index, direction, meters)
        # A tenth of a metre: finer figures would carry the exact positions of the frames.
        metres = round(walked.moved_meters, 1)
        self._episode = episode.stand(walked.frame_index, metres)
        if walked.frame_index == episode.pose.frame_index:
            words = f"No captured position lies {direction}; you have not moved."
        else:
            words = f"You moved {metres:g} m {direction}. {self._facing()}"
        return Shown(words, self._look(task, self._split, self._episode.pose), "view", metres)

    @tool(op="pin", cost=0.02, needs=("names",))
    def place_pin(self, lat: Latitude, lon: Longitude, label: Label, span_deg: Span = 7.0) -> Shown:
        """Pin a candidate: learn what is there and how far it lies from earlier pins, and see it on a map.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            label: Your own words for the candidate.
            span_deg: Height of the map in degrees.
        """
        there = self.game.geography.describe(lat, lon).text
        earlier = [
            f"{haversine_km(pin.lat, pin.lon, lat, lon):.1f} km from pin {pin.index}"
            for pin in self._now.pins
        ]
        self._episode = self._now.pin(lat, lon, label, there)
        placed = f"Pin {self._episode.pins[-1].index}: {there}"
        return self._mapped(lat, lon, span_deg, "; ".join([placed.rstrip("."), *earlier]) + ".")

    @tool(op="view_map", cost=0.01, needs=("map",))
    def view_map(self, lat: Latitude, lon: Longitude, span_deg: Span = 7.0) -> Shown:
        """See a map around a point, with your pins, without pinning it.

        Args:
            lat: Latitude of the middle in degrees, north positive.
            lon: Longitude of the middle in degrees, east positive.
            span_deg: Height of the map in degrees.
        """
        return self._mapped(
            lat, lon, span_deg, f"Map around {lat:.4f}, {lon:.4f}, {span_deg:g} degrees high."
        )

    @tool(op="reverse_geocode", cost=0.01, needs=("names",))
    def reverse_geocode(self, lat: Latitude, lon: Longitude) -> Shown:
        """Learn the names at a point: country, subregion, nearest city.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
        """
        there = self.game.geography.describe(lat, lon)
        names = [there.country.name, there.country.subregion] if there.country else ["Open sea"]
        return Shown(f"{', '.join(dict.fromkeys(names))}; nearest city {there.nearest_city.name}.")

    @tool(op="list_pins", needs=("names",))
    def list_pins(self) -> Shown:
        """List the pins placed so far. Costs no reward, but a turn."""
        lines = [
            f"{pin.index}. {pin.label} ({pin.lat:.4f}, {pin.lon:.4f}): {pin.description}"
            for pin in self._now.pins
        ]
        return Shown("\n".join(lines) or "There are no pins.")

    @tool(op="clear_pins", needs=("names",))
    def clear_pins(self) -> Shown:
        """Remove all pins. Costs no reward, but a turn."""
        count = len(self._now.pins)
        self._episode = self._now.unpin()
        return Shown(f"Removed {count} pin{'' if count == 1 else 's'}.")

    @tool(op="measure", needs=("names",))
    def measure(self, lat_a: Latitude, lon_a: Longitude, lat_b: Latitude, lon_b: Longitude) -> Shown:
        """Measure the great-circle distance between two points. Costs no reward, but a turn.

        Args:
            lat_a: Latitude of the first point in degrees.
            lon_a: Longitude of the first point in degrees.
            lat_b: Latitude of the second point in degrees.
            lon_b: Longitude of the second point in degrees.
        """
        return Shown(f"{haversine_km(lat_a, lon_a, lat_b, lon_b):.1f} km.")

    @tool(op="guess")
    def submit_guess(
        self,
        lat: Latitude,
        lon: Longitude,
        country: CountryName | None = None,
        confidence: Confidence | None = None,
        reasoning: Reasoning | None = None,
    ) -> Shown:
        """Commit the one guess of the episode; it ends here and is scored by distance.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            country: Country you believe it is in.
            confidence: How sure you are, 0 to 1.
            reasoning: Why, in a few words.
        """
        return self._commit(Guess(lat, lon, country, confidence))

    @tool(op="guess", when="response")
    def submit_reply(
        self,
        response: Response,
        lat: Latitude | None = None,
        lon: Longitude | None = None,
        country: CountryName | None = None,
        confidence: Confidence | None = None,
        reasoning: Reasoning | None = None,
    ) -> Shown:
        """Commit a guess as the raw reply of a model, from which the coordinates are read.

        Args:
            response: The whole reply.
            lat: Latitude, if it is known beside the reply; then the reply is not read.
            lon: Longitude, likewise.
            country: Country you believe it is in.
            confidence: How sure you are, 0 to 1.
            reasoning: Why, in a few words.
        """
        if lat is not None and lon is not None:
            return self._commit(Guess(lat, lon, country, confidence))
        found = parse_guess(response)
        if isinstance(found, ParseFailure):
            self._episode = self._now.fail_to_parse(found.reason)
            return Shown(f"No position could be read from the guess: {found.reason}. The episode is over.")
        return self._commit(Guess(found.lat, found.lon, country, confidence, found.how))

    def _aimed(
        self, heading_deg: float | None = None, pitch_deg: float | None = None, fov_deg: float | None = None
    ) -> Shown:
        self._episode = self._now.aim(heading_deg, pitch_deg, fov_deg)
        pose = self._episode.pose
        return Shown(self._facing(), self._look(self._playing, self._split, pose), "view")

    def _mapped(self, lat: float, lon: float, span_deg: float, words: str) -> Shown:
        if not self.game.splits[self._split].imagery.abilities(self._playing).map:
            return Shown(words)
        picture = render_map(lat, lon, span_deg, self._now.pins, self.game.rules.view_px)
        return Shown(words, picture, "map")

    def _commit(self, guess: Guess) -> Shown:
        episode, task = self._now, self._playing
        distance = haversine_km(guess.lat, guess.lon, task.start.lat, task.start.lon)
        there = self.game.geography.country_at(guess.lat, guess.lon)
        guess = replace(guess, country_code=there.code if there else None)
        score, reward = worth(self.game, task, guess.country_code, distance, episode.cost)
        self._episode = episode.commit(guess, Result(distance, score, reward))
        return Shown(f"Your guess is {distance:.1f} km away: {verdict(distance)}. The episode is over.")
