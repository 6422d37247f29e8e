"""Word lists of the made-up shop. Written for it; every brand that comes out is invented.

``word=other words`` gives a paraphrase: texts use either, label names use the first. The sizes of
the lists of nouns, features and extras fix how labels are numbered: never change their lengths.
"""

from __future__ import annotations

Pairs = tuple[tuple[str, str], ...]


def _pairs(text: str) -> Pairs:
    """Comma-separated ``word=paraphrase`` items; without a paraphrase a word is its own."""
    items = (item.strip().split("=") for item in text.replace("\n", " ").split(","))
    return tuple((parts[0], parts[-1]) for parts in items)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Department, then hints that give it away without naming it, then its 14 kinds of product.
_DEPARTMENTS = """
Kitchen; recipe, hob, chef, meal
saucepan=cooking pot, kettle=water boiler, toaster=bread browner, peeler=paring blade,
whisk=beater, colander=strainer, ladle=soup spoon, grater=shredder, spatula=turner,
baking tray=oven sheet, rolling pin=dough roller, chopping board=cutting block,
blender=smoothie maker, pan lid=pot cover
Garden; lawn, hedge, compost, greenhouse
hose=water pipe, spade=digging blade, rake=leaf gatherer, watering can=sprinkling jug,
trowel=hand shovel, planter=flower tub, mower=grass cutter, trellis=climbing frame,
bird bath=bird bowl, garden bench=outdoor seat, parasol=sun shade, hedge trimmer=branch clipper,
cold frame=seedling box, wheelbarrow=one-wheeled cart
Bathroom; soap, tap, tiles, steam
towel=drying cloth, bath mat=foot rug, shower curtain=splash screen, soap dish=suds tray,
toothbrush holder=brush cup, laundry basket=washing hamper, bathroom mirror=looking glass,
towel rail=hanging bar, shower head=spray nozzle, bath pillow=tub cushion,
tissue box=wipe dispenser, toilet brush=bowl scrubber, bath caddy=tub shelf,
shaving bowl=lather cup
Bedroom; sleep, pillow, night, mattress
duvet=down quilt, bed frame=sleeping base, bedside table=night stand, blanket=throw,
wardrobe=clothes closet, bolster=long cushion, bed sheet=fitted linen, alarm clock=wake-up timer,
headboard=bed back, dressing gown=lounge robe, mattress topper=bed pad, sleep mask=eye cover,
drawer chest=tallboy, hot water bottle=bed warmer
Office; desk, meeting, paperwork, spreadsheet
stapler=paper fastener, notebook=writing pad, desk lamp=task light, office chair=swivel seat,
ring binder=document folder, hole punch=paper perforator, whiteboard=dry-wipe panel,
pen holder=pencil pot, shredder=paper destroyer, letter tray=mail sorter, wall planner=year chart,
envelope=mailer, monitor stand=screen riser, label printer=sticker maker
Toys; play, fun, imagination, nursery
jigsaw=picture puzzle, teddy bear=stuffed animal, building block=stacking brick,
toy train=wooden locomotive, doll=little figure, spinning top=whirler, kite=wind flyer,
board game=tabletop pastime, marble run=ball track, hand puppet=glove character,
rocking horse=ride-on pony, play tent=indoor den, yo-yo=string spinner, shape sorter=peg box
Sports; match, training, coach, stadium
football=soccer ball, tennis racket=court bat, dumbbell=hand weight, yoga mat=stretching pad,
skipping rope=jump cord, whistle=referee blower, goal net=scoring mesh,
boxing glove=punching mitt, swimming cap=pool hat, shin guard=leg protector, stopwatch=lap timer,
golf club=fairway iron, table tennis bat=ping-pong paddle, kettlebell=swing weight
Camping; tent, wilderness, campfire, summit
sleeping bag=mummy sack, camping stove=gas burner, head torch=forehead lamp,
groundsheet=floor tarp, hammock=hanging bed, cool box=ice chest, water bottle=drinking flask,
camp chair=folding stool, tent peg=guy stake, compass=north finder, rucksack=hiking pack,
mess tin=field pan, fire starter=spark rod, trekking pole=walking stick
Cycling; pedal, saddle, handlebar, commute
bicycle pump=tyre inflator, bicycle helmet=crash lid, bicycle lock=wheel chain, pannier=rack bag,
mudguard=spray fender, bicycle bell=handlebar ringer, inner tube=rubber bladder,
saddle cover=seat sleeve, bottle cage=flask bracket, chain oil=drivetrain lube,
bicycle stand=repair rack, cycling jersey=race shirt, toe clip=pedal strap,
rear reflector=safety glow
Music; melody, concert, rehearsal, chord
guitar=six-string, music stand=score holder, metronome=tempo keeper, drumstick=percussion beater,
violin bow=horsehair stick, capo=fret clamp, tambourine=jingle drum, flute=wind pipe,
ukulele=island lute, keyboard stand=piano trestle, microphone=vocal pickup,
guitar strap=shoulder sling, tuning fork=pitch prong, harmonica=mouth organ
Pets; paw, fur, vet, tail
dog lead=walking leash, cat bed=kitten basket, bird cage=aviary, fish tank=aquarium,
pet bowl=feeding dish, scratching post=claw column, dog collar=neck band, litter tray=cat toilet,
hamster wheel=rodent runner, pet carrier=travel crate, chew toy=gnawing bone,
grooming brush=coat comb, cat flap=pet door, rabbit hutch=bunny house
Baby; newborn, nap, parent, lullaby
pram=baby carriage, cot=infant bed, baby bottle=milk feeder, changing mat=nappy pad,
high chair=feeding seat, baby monitor=cry listener, dribble bib=drool cloth, rattle=shaking toy,
baby sling=wrap carrier, playpen=safe enclosure, night light=dim glow, teether=gum soother,
stair gate=toddler barrier, bath seat=tub support
Lighting; glow, bulb, dimmer, watt
floor lamp=standing light, chandelier=crystal cluster, table lamp=side light,
lampshade=light cover, lantern=carry lamp, fairy light=twinkle string, spotlight=beam fitting,
wall sconce=bracket light, ceiling rose=cable cover, light bulb=filament globe,
candle holder=taper stand, pendant light=hanging lamp, motion light=sensor lamp,
light strip=glowing tape
Tools; workshop, bolt, repair, drill
hammer=nail driver, screwdriver=turn blade, spirit level=bubble gauge, spanner=nut wrench,
saw=toothed blade, tape measure=length reel, chisel=wood carver, clamp=work gripper,
sander=smoothing machine, pliers set=gripping pincers, tool box=kit case, workbench=sturdy table,
utility knife=snap blade, step ladder=folding steps
Automotive; engine, motorway, driver, garage
car mat=footwell liner, ice scraper=frost blade, roof box=luggage pod, tyre gauge=pressure reader,
jump lead=battery cable, seat cover=upholstery sleeve, car charger=dashboard plug,
tow rope=recovery line, wiper blade=screen clearer, phone mount=dash cradle,
boot liner=trunk tray, dash camera=road recorder, warning triangle=breakdown sign,
car jack=axle lifter
Electronics; circuit, battery, signal, gadget
headphone set=ear cups, loudspeaker=sound box, power bank=spare charge, webcam=video eye,
router=network hub, extension lead=socket strip, memory card=storage chip,
radio=broadcast receiver, projector=picture beamer, smart plug=remote socket,
adapter=converter plug, games controller=joypad, e-reader=digital book,
weather station=rain sensor
Clothing; wardrobe, outfit, tailor, fabric
jumper=knitted pullover, raincoat=wet-weather shell, scarf=neck wrap, waistcoat=sleeveless vest,
blouse=smart top, cardigan=buttoned knit, skirt=flared bottom, belt=waist strap,
beanie=woolly hat, glove=hand warmer, shirt=collared top, pyjama set=nightwear, apron=front cover,
tie=neck ribbon
Footwear; sole, stride, lace, heel
sandal=open shoe, boot=ankle protector, slipper=house shoe, trainer=running shoe,
clog=wooden mule, loafer=slip-on, wellington=rain boot, flip-flop=beach thong,
ballet pump=soft dancer, hiking shoe=trail walker, insole=foot bed, shoe tree=shape keeper,
shoe horn=heel slide, gaiter=ankle guard
Jewellery; sparkle, gift, wedding, elegance
necklace=neck chain, bracelet=wrist band, earring=lobe drop, brooch=lapel pin, ring=finger loop,
pendant=chain charm, cufflink=sleeve button, anklet=foot chain, tiara=hair crown,
watch strap=timepiece band, jewellery box=trinket case, hair clip=barrette, locket=picture charm,
bangle=rigid hoop
Health; wellbeing, doctor, pulse, comfort
thermometer=fever reader, first aid kit=emergency pouch, pill box=tablet organiser,
heating pad=warm compress, blood pressure cuff=arm monitor, plaster=wound strip,
massage roller=muscle kneader, walking frame=mobility aid, ice pack=cold compress,
back brace=lumbar support, eye bath=rinse cup, bathroom scale=weight checker,
foot spa=soaking basin, inhaler case=puffer sleeve
Crafts; hobby, pattern, stitch, handmade
knitting needle=yarn stick, sewing machine=stitch maker, embroidery hoop=fabric ring,
glue gun=hot melter, paint brush=bristle stick, easel=canvas prop, crochet hook=loop tool,
pin cushion=needle pad, craft knife=scalpel, stencil=cut-out template, yarn ball=wool skein,
bead kit=threading set, stamp set=ink blocks, loom=weaving frame
Travel; airport, holiday, passport, hotel
suitcase=wheeled trunk, neck pillow=flight cushion, luggage tag=bag label,
travel adapter=plug changer, passport cover=document sleeve, wash bag=toiletry pouch,
money belt=hidden wallet, packing cube=clothes divider, travel mug=insulated tumbler,
luggage scale=bag weigher, garment bag=suit carrier, duffel bag=barrel holdall,
travel towel=quick drier, city map=street guide
Cleaning; dust, stain, polish, hygiene
mop=floor swab, vacuum cleaner=dust sucker, duster=feather wand, bucket=pail, broom=sweeper,
scrubbing brush=stiff bristles, washing-up bowl=dish basin, squeegee=window wiper,
dustpan=crumb shovel, bin liner=rubbish sack, lint roller=fluff remover, pegs basket=clip hamper,
drying rack=airer, pressure washer=jet sprayer
Storage; shelf, tidy, clutter, attic
shelving unit=bookcase, storage box=lidded crate, coat hook=wall peg, shoe rack=boot shelf,
wine rack=bottle holder, vacuum bag=space saver, umbrella stand=brolly pot, spice rack=jar shelf,
hanger=clothes arch, drawer divider=section insert, magazine rack=paper stand,
key cabinet=fob cupboard, toy chest=play trunk, storage basket=woven bin
"""


def _departments() -> tuple[tuple[str, tuple[str, ...], Pairs], ...]:
    found = []
    name, hints, nouns = "", "", ""
    for line in [*_DEPARTMENTS.strip().splitlines(), ";"]:
        if ";" in line:
            if name:
                found.append((name, tuple(hints.strip().split(", ")), _pairs(nouns.strip(" ,"))))
            name, hints = line.split(";")
            nouns = ""
        else:
            nouns += f" {line}"
    return tuple(found)


DEPARTMENTS = _departments()
PRODUCTS_PER_DEPARTMENT = 14

# 61 features: a prime, so that stepping through them by any stride visits them all.
FEATURES = _pairs("""
folding=folds away flat, cordless=runs without a cable, insulated=keeps heat in,
waterproof=shrugs off rain, magnetic=clings by magnet, adjustable=adapts to any height,
stackable=piles up neatly, reusable=lasts for many uses, lightweight=weighs next to nothing,
heavy-duty=takes rough handling, padded=softly cushioned, rechargeable=tops up by cable,
non-slip=grips firmly, extendable=pulls out longer, portable=goes anywhere, silent=makes no noise,
scented=smells lovely, reversible=works both ways round, quilted=stitched in squares,
engraved=carved with a motif, striped=banded pattern, spotted=dotted pattern,
transparent=see-through, inflatable=blows up in seconds, solar=powered by daylight,
wall-mounted=screws to the wall, ergonomic=follows the body, handmade=crafted by hand,
recycled=made from waste, vintage=old-time look, miniature=tiny version, oversized=extra large,
quick-drying=dries fast, fireproof=resists flames, breathable=lets air through,
machine-washable=fine in the wash, self-cleaning=never needs a scrub, shockproof=survives drops,
anti-glare=easy on the eyes, dimmable=brightness to taste, tapered=narrows at the end,
hooded=with a cowl, wheeled=rolls along, lockable=closes with a key, hypoallergenic=kind to skin,
programmable=sets its own schedule, telescopic=slides together, hanging=dangles from above,
double-sided=two faces, printed=shows a picture, embroidered=decorated with thread,
fringed=edged with tassels, ribbed=grooved surface, perforated=full of small holes,
compact=fits in a drawer, detachable=comes apart, curved=gently bent, angled=tilted for reach,
woven=interlaced strands, lacquered=shiny coating, numbered=counted edition
""")

# 53 extras, prime for the same reason.
EXTRAS = _pairs("""
with lid=closes on top, with handle=easy to hold, with strap=slung over a shoulder,
with timer=counts down, with pockets=room for small things, with stand=stays upright,
with lining=soft inside, with zip=fastens quickly, with remote=steered from the sofa,
with cover=dust stays out, with drawer=slide-out tray, with mirror=reflects,
with wheels=on castors, with clip=snaps on, with hook=hangs up, with cushion=comfy seat,
with lamp=lights up, with filter=catches particles, with gauge=shows the level,
with spout=pours cleanly, for corners=sits in an angle, for small flats=saves space,
for caravans=holiday on wheels, for balconies=above the street, for boats=on deck,
for left-handers=southpaw, for tall people=extra height, for two=made to share,
for groups=party size, for beginners=first steps, for experts=demanding users,
for schools=classroom, for hotels=guest rooms, for winter=cold months, for summer=hot months,
for allergy sufferers=sensitive noses, for wet hands=slippery grip, for night use=after dark,
for uneven floors=wobbly ground, for narrow doors=tight passage, for long trips=far from home,
for gift giving=surprise someone, in sets of two=pair, in sets of four=quartet,
in sets of six=half a dozen, in gift box=ready to wrap, in travel size=hand luggage,
in family size=whole household, with spare parts=replacements, with carry case=protective shell,
with instructions=step by step, with guarantee=five years, with app=phone control
""")

COLOURS = _pairs("""
red=crimson tone, blue=colour of the sky, green=leafy shade, black=as dark as coal, white=snowy,
grey=stone tone, yellow=sunny hue, orange=tangerine tint, purple=plum tone, pink=rosy,
brown=chestnut tone, beige=sandy, turquoise=lagoon tint, navy=sailor tone, teal=duck-egg shade,
cream=off-white, gold=gilded look, silver=chrome look, copper=penny look, lilac=pale violet,
mint=peppermint tint, mustard=spicy yellow, burgundy=wine tone, charcoal=ash tone,
coral=reef tint, olive=drab green, ivory=tusk white, peach=apricot tint, khaki=dusty shade,
aqua=pool tint, ruby=gem red, emerald=gem green, sapphire=gem blue, amber=honey glow,
rust=iron tone, lavender=herb tint, chocolate=cocoa tone, lemon=citrus hue, slate=roof tone,
pearl=milky sheen
""")
SHADES = ("", "dark", "pale", "bright", "matt", "glossy", "soft", "deep", "dusty", "metallic")

MATERIALS = _pairs("""
oak=hardwood from old forests, steel=tough metal, cotton=soft plant fibre, leather=tanned hide,
glass=clear pane, bamboo=fast-growing cane, wool=sheep fleece, plastic=moulded polymer,
aluminium=light metal, linen=flax cloth, silicone=bendy and heat-proof, ceramic=fired clay,
rubber=springy latex, pine=softwood, brass=yellow alloy, marble=veined stone,
silk=smooth thread from cocoons, nylon=strong synthetic, cork=bark stopper stuff,
iron=forged metal, velvet=plush pile, canvas=sailcloth, walnut=dark timber, granite=speckled rock,
felt=pressed fibres, denim=jeans cloth, titanium=aerospace metal, porcelain=fine china,
rattan=wicker, beech=pale timber, acrylic=clear resin, suede=napped hide, fleece=fluffy pile,
zinc=galvanised metal, paper=pulp, jute=sack fibre, cashmere=goat down, foam=squashy core,
enamel=glazed coat, hemp=rope fibre
""")
FINISHES = (
    "",
    "brushed",
    "polished",
    "oiled",
    "treated",
    "reclaimed",
    "woven",
    "layered",
    "textured",
    "coated",
)

USES = _pairs("""
picnics=meals on the grass, weddings=the big day, home working=video calls,
birthdays=cake and candles, barbecues=charcoal evenings, moving house=boxes and vans,
festivals=tents and bands, night shifts=long dark hours, school runs=morning rush,
dinner parties=guests at the table, spring cleaning=top to bottom, beach days=sand and waves,
road trips=miles of tarmac, baking=flour and dough, reading=a good novel, fishing=rod and river,
meditation=calm minutes, studying=exam weeks, gaming=late levels, dancing=music and steps,
hiking=paths uphill, skiing=snowy slopes, sailing=wind and ropes, painting=canvas and colour,
bird watching=binoculars at dawn, jogging=laps in the park, stargazing=clear skies,
gift wrapping=paper and bows, woodwork=shavings and glue, photography=light and lens,
brewing=hops and malt, sewing=needle and thread, theatre=stage and curtain,
decorating=ladders and rollers, swimming=lengths in the pool, cheese making=curds and whey,
flower arranging=stems in a vase, car washing=suds and sponge, tea time=scones and cups,
recycling=sorting at home
""")
SEASONS = (
    "",
    "winter",
    "summer",
    "autumn",
    "spring",
    "weekend",
    "indoor",
    "outdoor",
    "city",
    "country",
)

AUDIENCES = _pairs("""
children=little ones, teenagers=young people at school, students=campus life,
grandparents=the older generation, dog owners=people with a four-legged friend,
gardeners=green fingers, cooks=people who love food, runners=fast feet,
teachers=anyone with a class, nurses=hospital staff, campers=outdoor sleepers,
commuters=daily travellers, collectors=lovers of rare things, musicians=players of instruments,
builders=people on site, brides=the wedding party, new parents=families with an infant,
pensioners=retired folk, artists=creative souls, cyclists=two-wheel fans, sailors=crews at sea,
bakers=early risers with ovens, cat lovers=owners of purring company,
office workers=nine-to-five people
""")
GROUPS = (
    "",
    "young",
    "busy",
    "keen",
    "careful",
    "thrifty",
    "modern",
    "professional",
    "hobby",
    "rural",
)

STYLES = _pairs("""
Nordic=clean and northern, rustic=farmhouse feel, industrial=factory feel, retro=seventies mood,
minimalist=nothing superfluous, baroque=richly ornamented, coastal=seaside mood,
bohemian=free and colourful, classic=timeless, futuristic=space age, art deco=stepped geometry,
shabby=worn charm, oriental=eastern patterns, tropical=palm leaves, gothic=pointed arches,
romantic=flowers and lace, sporty=dynamic lines, alpine=chalet feel, nautical=anchors and knots,
urban=big-city edge, floral=blossom print, geometric=triangles and cubes,
monochrome=one tone only, pastel=washed-out tints, tribal=carved symbols, tartan=highland check,
Victorian=age of steam, pop=comic-book bold, zen=quiet balance, country=meadow charm
""")
MOODS = ("", "new", "simple", "playful", "quiet", "bold", "warm", "cool", "light", "grand")

THEME_ADJECTIVES = _words("""
Silent Golden Wild Hidden Northern Southern Gentle Ancient Bright Frosty Misty Velvet Crystal
Amber Distant Secret Lonely Merry Royal Humble Rolling Sunken Floating Painted Whispering Dancing
Sleeping Burning Shining Broken Sacred Simple Early Late Endless Tender Brave Curious Noble Rosy
Stormy Snowy Sandy Mossy Leafy Starry Cloudy Dusky Breezy Thorny
""")
THEME_NOUNS = _words("""
Harbour Meadow Forest River Valley Summit Orchard Island Desert Lagoon Garden Castle Lantern
Mirror Compass Feather Anchor Bridge Chapel Tower Village Market Cottage Bakery Theatre Carnival
Voyage Journey Promise Memory Shadow Echo Sunrise Evening Morning Midnight Autumn Winter Harvest
Blossom Thistle Willow Cedar Heron Swallow Fox Otter Falcon Badger Hare
""")
CUES = _words("""
pebbles driftwood petals acorns feathers shells lanterns ribbons candles cinnamon lavender honey
saltwater thunder moonlight embers frost dew clover bracken heather ivy moss lichen seaweed sails
anchors ropes bells chimes drums violins waltz lullaby fable legend riddle puzzle maze spiral
circle mosaic fresco tapestry lace filigree pearls coral marigold peony tulip fern
""")

# Parts of invented brand names. The sizes are 32, 24 and 40; numbers beyond add middles.
BRAND_STARTS = _words("""
Vel Tar Bro Kes Lun Mor Nex Pol Quin Ral Sev Tol Und Vor Wex Yar Zel Bal Cor Dem Ful Gar Hil Jor
Kal Lev Mun Nor Pex Rud Sor Tev
""")
BRAND_MIDDLES = _words("""
a e i o u an en in or ul ar el im os ub av eb id og ur ac et il om
""")
BRAND_ENDS = _words("""
ra wick dale mond sen tix vax lith nora bern gard holm zia ko via dor fex lund mark nell pax quist
rin sby tova vell wyn xa yre zor bury cott dent fold gate hurst kin low mere ness
""")

SERIES = _words("""
Alder Birch Clay Dune Elm Fjord Glen Heath Inlet Jade Knoll Larch Marsh Nook Opal Pike Quartz Reed
Shale Tarn Umber Vale Wharf Yew Zephyr Acorn Basalt Cairn Delta Ember Flint Grove Haven Isle
Juniper Kelp Loch Mesa Nectar Onyx Plume
""")
