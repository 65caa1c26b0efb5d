#!/usr/bin/env python3
"""Makes a small question-answering set in SQuAD's form: paragraphs about made-up people, ships, shops and the like.

    tools/make_questions.py --train 2000 --dev 300 --seed 1 --out DIR [--v2]

Writes DIR/train.json and DIR/dev.json. A paragraph tells the same kind of facts about three or four subjects, so that an answer has to be
found: the first name, place or year that fits is most often the wrong one. No name of a person, place, ship, shop, bridge or peak occurs in
both files, and some forms of sentences and questions occur in the development set alone. The same arguments give the same files, and a larger
--train begins with the smaller one's paragraphs. With --v2 a third of the questions has no answer, as in SQuAD 2.0.
Only Python's standard library is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import random
import re

# Names. Words at even places of a list are for training, those at odd places for the development set.
WOMEN = """Ada Alma Beate Bettina Carla Celia Dora Delia Edith Elena Fanny Flora Greta Gilda Hanna Helga Ida Irma Johanna Judith Karin Klara Lena
Leonie Marta Mina Nadja Nora Olga Ottilie Paula Petra Ruth Rosa Selma Sonja Thea Tilda Ursula Vera Wanda Wilma""".split()
MEN = """Albin Anton Bruno Balthasar Carl Casper Dietrich Dario Emil Egon Felix Florian Georg Gustav Hugo Hannes Igor Ivan Jakob Jonas Kaspar Konrad Lars
Leon Magnus Moritz Niklas Nestor Oskar Otto Paul Pirmin Rolf Ruben Simon Stefan Tobias Theo Urban Valentin Werner Xaver""".split()
SURNAMES = """Adlerson Almqvist Barrowdale Bergstrand Corvane Castellow Delvaux Drummelby Elsander Estermont Farrowick Fennimore Garrickson Grünlund Hallowell
Hestervig Ingersoll Ivarsen Jørvald Jasperson Kellerman Kirkwall Lindqvist Lockridge Marchetti Mossberg Norrland Nightingale Osterwald Oakhurst Pellworth
Pembrook Quillfeather Quarrington Rosenthal Ravensdale Sanderling Sternwood Tolliver Thornquist Underhay Umberland Vandermeer Vossberg Whitlock Winterbourne
Yarrowby Yellowlees Zimmerling Zaharoff""".split()
PLACES = """Aldermoor Ashcombe Brackwater Brindleford Copperhill Cresthaven Dunmarrow Drayling Eastermere Elmswick Foxhollow Farnstead Greywick Gorseby
Hartlebay Hollinghurst Ironmere Islecombe Jarrowfield Junipersea Kelmsgate Kestrelford Larkmere Lowmarsh Marlowick Mistlebury Nettlewick Northolm
Otterholt Oakenshaw Pinemouth Plumhurst Quarrydale Quillham Redwater Ryemouth Saltmere Silverbeck Thistledon Tamworthy Underfell Upperlee Vailmont
Violetown Westerby Wrenfield Yewdale Yarmston""".split()
ADJECTIVES = "Blue Silver Golden Merry Silent Wandering Northern Amber Crimson Patient Hidden Lucky".split()
SHIP_NOUNS = "Heron Swallow Lantern Anchor Dolphin Falcon Comet Petrel Maiden Otter Meteor Sparrow Tempest Seahorse Pilgrim Compass".split()
SHOP_NOUNS = "Kettle Thimble Spoon Button Basket Pepper Candle Ribbon Barrel Feather Mortar Teapot Hammer Needle Saddle Bellows".split()
WATERS = "Arle Brenn Callow Dove Esker Fenn Garle Hask Ister Jarl Kenning Lode Merle Nadder Orrin Pell".split()
PEAKS = "Arkell Bodrum Carrow Dunross Erskel Falgar Gorran Hesper Ingel Jorund Karrow Lomund Morven Nessel Orford Pendle".split()

# What both sets may say.
JOBS = """glassblower astronomer watchmaker botanist printer apothecary bookbinder shipwright beekeeper surveyor cartographer organist blacksmith weaver
engraver schoolteacher locksmith baker""".split()
GOODS = """beeswax candles|woollen blankets|garden seeds|smoked fish|second-hand books|leather boots|copper pans|dried herbs|wooden toys|fresh bread|old maps|
fishing nets|silk scarves|musical boxes|goat's cheese|writing paper""".replace("\n", "").split("|")
CARGOES = """barley|oranges|timber|window glass|cotton|roof tiles|olive oil|coal|wine|wool|marble|dried figs|tin|salt|paper|saffron""".split("|")
STREETS = "Mill Lane|Harbour Street|Church Row|Station Road|Market Hill|Bell Alley|Garden Walk|Canal Street|Castle Steps|Orchard Road".split("|")
HOURS = "six o'clock|half past six|seven o'clock|half past seven|eight o'clock|half past eight|nine o'clock|half past nine|ten o'clock".split("|")
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MATERIALS = "copper ore|river clay|pine resin|white quartz|beet sugar|sea salt|cast iron|powdered chalk|willow bark|lamp oil|raw silk|black sand".split("|")
COLOURS = "dark red|pale yellow|deep blue|bright green|milky white|almost black|light grey|purple|orange|rust brown".split("|")
INSTRUMENTS = "cello|oboe|harp|clarinet|trumpet|viola|bassoon|flute|organ|lute|horn|zither".split("|")
HALLS = "the town hall|the old theatre|the railway museum|the botanical garden|the cathedral|the school gymnasium|the winter garden|the grain exchange".split("|")
OBJECTS = """bronze mirror|painted globe|silver flute|carved chess set|stone lamp|woven carpet|brass telescope|ivory comb|glass bowl|wooden mask|clay
tablet|pearl necklace""".replace("\n", " ").split("|")
ROOMS = "the east wing|the long gallery|the cellar|the entrance hall|the reading room|the tower|the west wing|the blue room".split("|")
CROPS = "barley|potatoes|hops|sunflowers|flax|beans|rye|cabbages|apples|pumpkins|oats|onions".split("|")
ANIMALS = "goats|geese|sheep|horses|bees|donkeys|turkeys|cows|ducks|rabbits".split("|")
GIFTS = "a pressed flower|a silver coin|a lock of hair|a photograph|a theatre ticket|a small key|a recipe|a map of the coast|a dried leaf|a pocket watch".split("|")
SMALL_NUMBERS = "four five six seven nine eleven twelve fourteen sixteen eighteen twenty thirty forty fifty".split()


class Topic:
    """One kind of paragraph. `attributes` says of which kind each is; the first is the subject. A form that begins with * is for the
    development set alone. In forms, {x} is the attribute x, {x|a} has its article before it, and {He}, {he}, {his}, {His} stand for the person
    in the attribute `person`."""

    def __init__(self, title, attributes, intros, sentences, questions, person=None):
        self.title, self.attributes, self.intros, self.sentences, self.questions, self.person = title, attributes, intros, sentences, questions, person


TOPICS = [
    Topic(
        "People of {town}",
        {"name": "person", "birthplace": "place", "year": "year", "job": "job", "home": "place"},
        ["The local history of {town} remembers several people.", "A plaque in {town} honours a few people who once worked there.",
         "*Visitors to the museum of {town} can read about the lives of some of its friends."],
        ["{name} was born in {birthplace} in {year}. {He} became {job|a} and later settled in {home}.",
         "Born in {year}, {name} grew up in {birthplace}, where {his} parents had a farm. {He} learned the trade of {job|a} and moved to {home}.",
         "{name}, {job|a} by training, came from {birthplace} and was born in {year}. {His} last years were spent in {home}.",
         "In {year}, {name} was born to a poor family in {birthplace}. {He} found work as {job|a}, and {home} became {his} home.",
         "{birthplace} is the birthplace of {name}, who was born in {year}. {He} lived in {home} and worked there as {job|a}.",
         "*The {job} {name} lived in {home} for most of {his} life, although {he} had been born in {birthplace} in {year}.",
         "*It was in {birthplace} that {name} was born, in the year {year}. {He} earned {his} living as {job|a} in {home}."],
        {"birthplace": ["Where was {name} born?", "In which town was {name} born?", "What is the birthplace of {name}?", "Where was the {job} born?",
                        "*Which town did {name} come from?", "*Where was the person born who later lived in {home}?"],
         "year": ["When was {name} born?", "In what year was {name} born?", "When was the {job} born?", "*What was the year of {name}'s birth?"],
         "job": ["What was the profession of {name}?", "What did {name} work as?", "What was the trade of the person born in {birthplace}?",
                 "*How did {name} earn a living?"],
         "home": ["Where did {name} settle?", "In which town did {name} live later in life?", "Where did the {job} make a home?",
                  "*Which town became the home of {name}?"],
         "name": ["Who was born in {birthplace}?", "Who was the {job}?", "Who was born in {year}?", "*Which person settled in {home}?"]},
        person="name"),
    Topic(
        "Shops in {town}",
        {"shop": "shop", "owner": "person", "goods": "goods", "street": "street", "hour": "hour"},
        ["The centre of {town} is known for its small shops.", "A walk through {town} leads past several old shops.", "*Few towns have kept as many little shops as {town}."],
        ["The {shop} on {street} belongs to {owner}. It sells {goods} and opens at {hour}.",
         "{owner} runs the {shop}, a narrow shop on {street}. Customers come for {goods}, and the doors open at {hour}.",
         "On {street} stands the {shop}, which {owner} took over some years ago. It opens at {hour} and is known for {goods}.",
         "Anyone who needs {goods} goes to the {shop}. Its owner, {owner}, opens it at {hour}; it lies on {street}.",
         "*Early risers know the {shop} on {street}, for it opens at {hour}. Behind the counter stands {owner}, who sells {goods}.",
         "*{owner} has sold {goods} for many years. The shop is called the {shop}, lies on {street} and opens at {hour}."],
        {"owner": ["Who owns the {shop}?", "Who runs the shop on {street}?", "Who sells {goods}?", "*To whom does the {shop} belong?"],
         "goods": ["What does the {shop} sell?", "What can be bought from {owner}?", "What is sold on {street}?", "*For what do people go to the {shop}?"],
         "street": ["On which street is the {shop}?", "Where is the {shop}?", "Where can one buy {goods}?", "*On what street does {owner} have a shop?"],
         "hour": ["When does the {shop} open?", "At what time does the shop on {street} open?", "*From what time on is the {shop} open?"],
         "shop": ["Which shop sells {goods}?", "What is the name of the shop on {street}?", "Which shop does {owner} own?", "*Which shop opens at {hour}?"]}),
    Topic(
        "Ships in the harbour of {town}",
        {"ship": "ship", "captain": "person", "origin": "place", "destination": "place", "cargo": "cargo", "month": "month"},
        ["The harbour book of {town} lists the voyages of that year.", "Several ships are mentioned in a letter from {town}.", "*An old newspaper from {town} reports on the ships of the season."],
        ["The {ship} sailed from {origin} to {destination} in {month}. {captain} was her captain, and she carried {cargo}.",
         "In {month}, {captain} took the {ship} out of {origin}. Loaded with {cargo}, she reached {destination} safely.",
         "Under Captain {captain}, the {ship} brought {cargo} from {origin} to {destination}. She arrived in {month}.",
         "The {ship} left {origin} with a cargo of {cargo}. Her captain, {captain}, brought her to {destination} in {month}.",
         "*{captain} commanded the {ship}, which was bound for {destination}. She had left {origin} in {month} with {cargo} in her hold.",
         "*With {cargo} on board, the {ship} made her way from {origin} to {destination} in {month}; {captain} was at the helm."],
        {"captain": ["Who was the captain of the {ship}?", "Who commanded the ship that carried {cargo}?", "Which captain sailed to {destination}?",
                     "*Who was in command of the {ship}?"],
         "origin": ["Where did the {ship} come from?", "From which port did the {ship} sail?", "Where did {captain} set sail from?", "*Which port did the ship with {cargo} leave?"],
         "destination": ["Where did the {ship} sail to?", "To which port was the {cargo} brought?", "What was the destination of the {ship}?", "*Where was {captain} bound for?"],
         "cargo": ["What did the {ship} carry?", "What was the cargo of the {ship}?", "What did {captain} bring to {destination}?", "*With what was the {ship} loaded?"],
         "month": ["In which month did the {ship} sail?", "When did {captain} make the voyage?", "*In what month did the ship with {cargo} travel?"],
         "ship": ["Which ship carried {cargo}?", "Which ship did {captain} command?", "Which ship sailed from {origin}?", "*What was the ship called that went to {destination}?"]}),
    Topic(
        "The laboratory of {town}",
        {"researcher": "person", "material": "material", "temperature": "temperature", "duration": "minutes", "colour": "colour"},
        ["The laboratory of {town} published its notes on heating.", "Several samples were tested in {town} that week.", "*The winter's experiments in {town} were all of one kind."],
        ["{researcher} heated {material} to {temperature}. After {duration} it had turned {colour}.",
         "At a table by the window, {researcher} worked with {material}. At {temperature} the sample turned {colour}, which took {duration}.",
         "The sample of {material} was prepared by {researcher}. It was kept at {temperature} for {duration} and came out {colour}.",
         "For {duration}, {researcher} kept a dish of {material} at {temperature}. In the end it was {colour}.",
         "*It took {duration} at {temperature} until {material} became {colour}, as {researcher} wrote down.",
         "*{researcher} reported that {material} is {colour} once it has been held at {temperature} for {duration}."],
        {"researcher": ["Who worked with {material}?", "Who heated a sample to {temperature}?", "Whose sample turned {colour}?", "*Which researcher tested {material}?"],
         "material": ["What did {researcher} heat?", "Which material turned {colour}?", "What was heated to {temperature}?", "*Which substance did {researcher} test?"],
         "temperature": ["To what temperature was the {material} heated?", "At what temperature did {researcher} work?", "*How hot was the sample of {material}?"],
         "duration": ["How long did {researcher} heat the sample?", "How long was the {material} heated?", "*For how long was {material} kept hot?"],
         "colour": ["What colour did the {material} turn?", "What was the colour of {researcher}'s sample?", "*What did the sample look like that was kept at {temperature}?"]}),
    Topic(
        "The peaks above {town}",
        {"peak": "peak", "height": "height", "climber": "person", "year": "year", "village": "place"},
        ["From the square in {town} several mountains can be seen.", "The guide book of {town} describes the peaks around it.", "*Mountaineers have come to {town} for more than a century."],
        ["{peak} is {height} high. {climber} was the first to climb it, in {year}, starting from {village}.",
         "In {year}, {climber} reached the top of {peak}, which rises to {height}. The path begins in {village}.",
         "The village of {village} lies at the foot of {peak}. The mountain has a height of {height} and was first climbed by {climber} in {year}.",
         "{climber} stood on {peak} before anyone else, in {year}. It measures {height}, and the climb starts at {village}.",
         "*With {height}, {peak} towers above {village}. Nobody had been on its summit until {climber} got there in {year}.",
         "*The first ascent of {peak} was made from {village} in {year} by {climber}; the summit is at {height}."],
        {"height": ["How high is {peak}?", "What is the height of {peak}?", "How high is the mountain that {climber} climbed?", "*How tall is the mountain near {village}?"],
         "climber": ["Who first climbed {peak}?", "Who was the first on top of {peak}?", "Who reached a summit in {year}?", "*By whom was the mountain near {village} first climbed?"],
         "year": ["When was {peak} first climbed?", "In what year did {climber} reach the summit?", "*In which year was the first ascent of {peak}?"],
         "village": ["At which village does the path to {peak} begin?", "From where did {climber} start?", "*Which village lies closest to {peak}?"],
         "peak": ["Which mountain did {climber} climb?", "Which mountain is {height} high?", "Which mountain was first climbed in {year}?", "*Which mountain rises near {village}?"]}),
    Topic(
        "Bridges near {town}",
        {"bridge": "bridge", "engineer": "person", "year": "year", "length": "length", "river": "water"},
        ["The roads around {town} cross many rivers.", "A survey of the bridges near {town} was made last year.", "*Without its bridges {town} would be hard to reach."],
        ["The {bridge} Bridge crosses the {river}. It was built by {engineer}, opened in {year} and is {length} long.",
         "{engineer} designed the {bridge} Bridge, which has spanned the {river} since {year}. Its length is {length}.",
         "Over the {river} leads the {bridge} Bridge, {length} long. The plans were drawn by {engineer}, and traffic began in {year}.",
         "In {year} the {bridge} Bridge was opened. {engineer} had planned it; it is {length} long and crosses the {river}.",
         "*Travellers cross the {river} on the {bridge} Bridge, a work of {engineer} from {year} with a length of {length}.",
         "*Since {year} there has been a bridge over the {river}. It is {length} long, bears the name {bridge} and is a work of {engineer}."],
        {"engineer": ["Who built the {bridge} Bridge?", "Who designed the bridge over the {river}?", "Who was the engineer of the {bridge} Bridge?", "*Whose work is the bridge that was opened in {year}?"],
         "year": ["When was the {bridge} Bridge opened?", "In what year was the bridge over the {river} opened?", "*Since when has the {bridge} Bridge existed?"],
         "length": ["How long is the {bridge} Bridge?", "What is the length of the bridge over the {river}?", "*How long is the bridge that {engineer} planned?"],
         "river": ["Which river does the {bridge} Bridge cross?", "Over which river did {engineer} build a bridge?", "*What flows under the {bridge} Bridge?"],
         "bridge": ["Which bridge was opened in {year}?", "Which bridge crosses the {river}?", "Which bridge did {engineer} design?", "*Which bridge is {length} long?"]}),
    Topic(
        "The museum of {town}",
        {"object": "object", "donor": "person", "room": "room", "year": "year", "origin": "place"},
        ["The museum of {town} owes its collection to its friends.", "Not everything in the museum of {town} was bought.", "*Most treasures of the museum in {town} were gifts."],
        ["The {object} was given by {donor} in {year}. It was made in {origin} and stands in {room}.",
         "{donor} found the {object} in {origin} and gave it to the museum in {year}. Today it is shown in {room}.",
         "In {room} visitors see the {object}. It comes from {origin} and was a present from {donor}, who brought it in {year}.",
         "The {object} from {origin} has been in {room} for a long time; {donor} donated it in {year}.",
         "*Since {year} the museum has owned the {object}, thanks to {donor}. It was dug up near {origin} and is kept in {room}.",
         "*A gift from {donor}, received in {year}, was the {object}. Craftsmen in {origin} had made it, and {room} is its place now."],
        {"donor": ["Who gave the {object} to the museum?", "Who donated something from {origin}?", "Who made a gift in {year}?", "*From whom did the museum receive the {object}?"],
         "room": ["Where is the {object} shown?", "In which part of the museum is the {object}?", "Where can one see the gift of {donor}?", "*Where is the object from {origin} kept?"],
         "year": ["When was the {object} given to the museum?", "In what year did {donor} make a gift?", "*Since when has the museum owned the {object}?"],
         "origin": ["Where does the {object} come from?", "Where does the gift of {donor} come from?", "*From which place was the object brought that is in {room}?"],
         "object": ["What did {donor} give to the museum?", "What is shown in {room}?", "What comes from {origin}?", "*What did the museum receive in {year}?"]}),
    Topic(
        "The music week of {town}",
        {"musician": "person", "instrument": "instrument", "day": "day", "hall": "hall", "hometown": "place"},
        ["The programme of the music week in {town} was printed yesterday.", "Each spring {town} invites musicians.", "*For one week there is music all over {town}."],
        ["On {day}, {musician} from {hometown} plays the {instrument} in {hall}.",
         "{musician}, who lives in {hometown}, can be heard in {hall} on {day}. {He} has played the {instrument} since {his} childhood.",
         "The concert in {hall} is on {day}: {musician} has come from {hometown} with {his} {instrument}.",
         "Those who love the {instrument} should go to {hall} on {day}, where {musician} of {hometown} performs.",
         "*{hometown} is the home of {musician}, whose {instrument} will fill {hall} with music on {day}.",
         "*Tickets for {day} are almost sold out, as {musician} brings {his} {instrument} from {hometown} to {hall}."],
        {"musician": ["Who plays the {instrument}?", "Who performs on {day}?", "Who plays in {hall}?", "*Which musician comes from {hometown}?"],
         "instrument": ["Which instrument does {musician} play?", "What does {musician} play?", "Which instrument can be heard on {day}?", "*Which instrument is played in {hall}?"],
         "day": ["On which day does {musician} perform?", "When can the {instrument} be heard?", "On what day is the concert in {hall}?", "*When does the musician from {hometown} play?"],
         "hall": ["Where does {musician} perform?", "Where is the concert on {day}?", "*Where can the {instrument} be heard?"],
         "hometown": ["Where does {musician} come from?", "Which town is {musician} from?", "*Where does the person live who plays the {instrument}?"]},
        person="musician"),
    Topic(
        "Farms around {town}",
        {"farmer": "person", "crop": "crop", "place": "place", "area": "area", "animal": "animal"},
        ["The fields around {town} belong to a few families.", "At the market of {town} the farmers know each other.", "*There is hardly a better soil than that around {town}."],
        ["{farmer} has a farm of {area} near {place}. The fields bear {crop}, and {animal} are kept behind the house.",
         "Near {place}, {farmer} grows {crop} on {area}. {He} also keeps {animal}.",
         "{farmer} keeps {animal} and grows {crop}. {His} farm lies near {place} and has {area}.",
         "The farm near {place} is run by {farmer}. It has {area} of {crop}, and there are {animal} as well.",
         "*On {area} near {place}, {farmer} has planted {crop}; the {animal} in the yard are {his} pride.",
         "*{crop|cap} and {animal} are what {farmer} lives on. {He} works {area} near {place}."],
        {"farmer": ["Who grows {crop}?", "Who keeps {animal}?", "Who has a farm near {place}?", "*Whose farm has {area}?"],
         "crop": ["What does {farmer} grow?", "What is grown near {place}?", "What grows on the farm with the {animal}?", "*What has {farmer} planted?"],
         "place": ["Where is the farm of {farmer}?", "Near which place does {farmer} have a farm?", "Near which place is the farm with the {animal}?",
                   "*Near which place does {farmer} work the land?"],
         "area": ["How large is the farm of {farmer}?", "How large is the farm near {place}?", "*How much land does {farmer} have?"],
         "animal": ["Which animals does {farmer} keep?", "Which animals are kept near {place}?", "*Which animals can be seen on the farm of {farmer}?"]},
        person="farmer"),
    Topic(
        "Letters from {town}",
        {"sender": "person", "receiver": "person", "place": "place", "days": "days", "gift": "gift"},
        ["A bundle of letters was found in {town}.", "The archive in {town} keeps a box of letters.", "*In an attic in {town} somebody discovered old letters."],
        ["{sender} wrote to {receiver} in {place}. The letter took {days} and contained {gift}.",
         "{receiver}, who lived in {place}, received a letter from {sender}. It had been on its way for {days}, and {gift} was in it.",
         "After {days} a letter from {sender} arrived in {place}. It was meant for {receiver} and held {gift}.",
         "{sender} put {gift} into the envelope for {receiver}. The post needed {days} to bring it to {place}.",
         "*The envelope that {sender} sent to {receiver} reached {place} after {days}; inside was {gift}.",
         "*In {place}, {receiver} opened an envelope and found {gift}. {sender} had sent it {days} before."],
        {"sender": ["Who wrote to {receiver}?", "Who sent a letter to {place}?", "Who sent {gift}?", "*From whom did {receiver} receive a letter?"],
         "receiver": ["To whom did {sender} write?", "Who received a letter from {sender}?", "Who received {gift}?", "*For whom was the letter that went to {place}?"],
         "place": ["Where did {receiver} live?", "Where did the letter from {sender} go?", "To which place was {gift} sent?", "*In which place did {receiver} get the letter?"],
         "days": ["How long did the letter from {sender} take?", "How long was the letter to {receiver} on its way?", "*After what time did the letter reach {place}?"],
         "gift": ["What was in the letter to {receiver}?", "What did {sender} send?", "What was sent to {place}?", "*What did {receiver} find in the envelope?"]}),
]  # fmt: skip


def pools(split: str) -> dict[str, list[str]]:
    """The words that only this split uses in names."""
    own = slice(0 if split == "train" else 1, None, 2)
    names = {"women": WOMEN, "men": MEN, "surnames": SURNAMES, "places": PLACES, "ships": SHIP_NOUNS, "shops": SHOP_NOUNS, "waters": WATERS, "peaks": PEAKS}
    return {kind: words[own] for kind, words in names.items()}


class Person(str):
    """A full name that knows its pronouns."""

    pronouns = {}


def make_person(chance: random.Random, own: dict[str, list[str]]) -> Person:
    woman = chance.random() < 0.5
    person = Person(f"{chance.choice(own['women' if woman else 'men'])} {chance.choice(own['surnames'])}")
    person.pronouns = dict(zip(("He", "he", "His", "his"), ("She", "she", "Her", "her") if woman else ("He", "he", "His", "his")))
    return person


def make_value(kind: str, chance: random.Random, own: dict[str, list[str]]) -> str:
    simple = {
        "job": JOBS, "goods": GOODS, "street": STREETS, "hour": HOURS, "cargo": CARGOES, "month": MONTHS, "material": MATERIALS, "colour": COLOURS,
        "room": ROOMS, "object": OBJECTS, "instrument": INSTRUMENTS, "day": DAYS, "hall": HALLS, "crop": CROPS, "animal": ANIMALS, "gift": GIFTS,
        "place": own["places"], "water": own["waters"],
    }  # fmt: skip
    if kind in simple:
        return chance.choice(simple[kind])
    if kind == "person":
        return make_person(chance, own)
    if kind in ("ship", "shop"):
        return f"{chance.choice(ADJECTIVES)} {chance.choice(own[kind + 's'])}"
    if kind == "bridge":
        return chance.choice(own["surnames"] + own["places"])
    if kind == "peak":
        return f"Mount {chance.choice(own['peaks'])}"
    if kind == "year":
        return str(chance.randrange(1790, 1960))
    if kind == "height":
        return f"{chance.randrange(1, 5)},{chance.randrange(100, 1000)} metres"
    if kind == "length":
        return f"{chance.randrange(40, 900)} metres"
    if kind == "temperature":
        return f"{chance.randrange(6, 90) * 10} degrees"
    unit = {"minutes": "minutes", "days": "days", "area": "acres"}[kind]
    return f"{chance.choice(SMALL_NUMBERS)} {unit}"


def words_of(value: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d]+|[\d,]+", value) if word not in {"a", "of", "the", "o", "clock", "half", "past", "Mount"}}


def make_subjects(topic: Topic, count: int, chance: random.Random, own: dict[str, list[str]], town: str) -> list[dict[str, str]]:
    """No two values of one paragraph share a word (units aside): a question about one of them fits nothing else."""
    units = {"metres", "degrees", "minutes", "days", "acres", "clock"}
    used = words_of(town)
    subjects = []
    for _ in range(count):
        subject = {}
        for attribute, kind in topic.attributes.items():
            value = make_value(kind, chance, own)
            while kind not in ("street", "hour", "room", "hall") and words_of(value) - units & used or value in used:
                value = make_value(kind, chance, own)
            used |= (words_of(value) - units) | {value}
            subject[attribute] = value
        subjects.append(subject)
    return subjects


def available(forms: list[str], split: str) -> list[str]:
    """Forms with a star are for the development set alone."""
    return [form.lstrip("*") for form in forms if split == "dev" or not form.startswith("*")]


SLOT = re.compile(r"\{(\w+)(?:\|(\w+))?\}")


def fill(form: str, subject: dict[str, str], topic: Topic, spans: dict[str, tuple[int, int]] | None = None, offset: int = 0) -> str:
    """The form with its slots filled; `spans` receives where each attribute lies."""
    text, end = "", 0
    for slot in SLOT.finditer(form):
        text += form[end : slot.start()]
        end = slot.end()
        name, how = slot[1], slot[2]
        if name in ("He", "he", "His", "his"):
            text += subject[topic.person].pronouns[name]
            continue
        value = str(subject[name])
        if how == "a":
            text += "an " if value[0] in "aeiou" else "a "
        if how == "cap":
            value = value[0].upper() + value[1:]
        if spans is not None and name not in spans:
            spans[name] = (offset + len(text), offset + len(text) + len(value))
        text += value
    return text + form[end:]


def make_paragraph(topic: Topic, split: str, chance: random.Random, own: dict[str, list[str]]):
    """The text, the subjects, and for each of them where its attributes lie."""
    town = chance.choice(own["places"])
    subjects = make_subjects(topic, chance.choice((3, 3, 4)), chance, own, town)
    context = chance.choice(available(topic.intros, split)).replace("{town}", town)
    forms = available(topic.sentences, split)
    all_spans = []
    for subject, form in zip(subjects, chance.sample(forms, len(subjects))):
        spans: dict[str, tuple[int, int]] = {}
        context += " " + fill(form, subject, topic, spans, len(context) + 1)
        all_spans.append(spans)
    return town, context, subjects, all_spans


def identity(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def make_questions(topic, split, chance, own, context, subjects, all_spans, v2):
    """Up to five questions, each about another fact of the paragraph."""
    facts = [(i, attribute) for i in range(len(subjects)) for attribute in topic.questions]
    questions = []
    for i, attribute in chance.sample(facts, 5):
        form = chance.choice(available(topic.questions[attribute], split))
        start, end = all_spans[i][attribute]
        answer = {"text": context[start:end], "answer_start": start}
        subject = subjects[i]
        impossible = v2 and chance.random() < 1 / 3
        if impossible:
            # The same question about somebody or something that this paragraph does not know.
            subject = stranger(topic, chance, own, context)
        question = fill(form, subject, topic)
        entry = {"id": identity(split, context, question), "question": question, "answers": [] if impossible else [answer]}
        if v2:
            entry["is_impossible"] = impossible
        questions.append(entry)
    return questions


def stranger(topic: Topic, chance: random.Random, own: dict[str, list[str]], context: str) -> dict[str, str]:
    subject = {}
    for attribute, kind in topic.attributes.items():
        value = make_value(kind, chance, own)
        while value in context:
            value = make_value(kind, chance, own)
        subject[attribute] = value
    return subject


def make_set(split: str, count: int, seed: int, v2: bool) -> dict:
    """Topics take turns; each paragraph has a generator of its own, so that it does not depend on how many there are."""
    own = pools(split)
    articles = []
    made = 0
    while made < count:
        topic = TOPICS[len(articles) % len(TOPICS)]
        chance = random.Random(f"{seed}/{split}/{len(articles)}")
        town, context, subjects, all_spans = make_paragraph(topic, split, chance, own)
        questions = make_questions(topic, split, chance, own, context, subjects, all_spans, v2)[: count - made]
        made += len(questions)
        articles.append({"title": topic.title.replace("{town}", town), "paragraphs": [{"context": context, "qas": questions}]})
    check(articles)
    return {"version": "v2.0" if v2 else "1.1", "data": articles}


def check(articles: list[dict]) -> None:
    for article in articles:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                for answer in entry["answers"]:
                    start = answer["answer_start"]
                    if paragraph["context"][start : start + len(answer["text"])] != answer["text"]:
                        raise AssertionError(f"{entry['id']}: the answer is not where it should be")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="questions for training (2000)")
    parser.add_argument("--dev", type=int, default=300, metavar="N", help="questions of the development set (300)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other paragraphs (1)")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="where train.json and dev.json go")
    parser.add_argument("--v2", action="store_true", help="SQuAD 2.0: a third of the questions has no answer")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", options.train), ("dev", options.dev)):
        made = make_set(split, count, options.seed, options.v2)
        path = options.out / f"{split}.json"
        path.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"{path}: {count} questions on {len(made['data'])} paragraphs")


if __name__ == "__main__":
    main()
