"""What the streets of each country look like: the facts, as one table that a person can edit.

Columns: `mid` (centre) and `edge` line (paint letter, then d dashed, s solid, = double solid; N none), `dash`
(metres painted/metres not), `pole` with its spacing in metres, `script`, `tongue` (how Latin names sound),
`wall` and `roof` (names in `palette`), `plate` (front, rear, + for a blue band), `warn` (warning sign: tri,
ytri, dia), `dir` (direction sign paint), `kerb` paint (alternates with white or black, g plain, N none),
`post` (paint of the bollards' reflectors, N none), `dirt` (share of unpaved roads), `fence`, `flag` (see
`flags`), `tel` (calling code).
"""

from __future__ import annotations

TABLE = """
code mid edge dash pole  gap script   tongue  wall   roof   plate warn dir kerb post dirt fence  flag     tel
NO   Yd  Wd   3/9  wood  45  latin    nordic  falu   dark   WW+   tri  Y   N    W    .05  rail   n:RWB    47
SE   Wd  Wd   3/9  wood  50  latin    nordic  falu   red    WW+   ytri B   N    W    .10  wood   n:BYY    46
FI   Wd  Ws   3/9  metal 55  latin    finnic  siding tin    WW+   ytri B   N    R    .12  wood   n:WBB    358
DK   Wd  Wd   5/10 none  0   latin    nordic  brick  terra  WW+   tri  W   g    W    .02  hedge  n:RWW    45
IS   Wd  Ws   3/9  none  0   latin    nordic  tin    red    WW    ytri Y   N    Y    .22  wire   n:BWR    354
GB   Wd  Ws   4/2  wood  40  latin    english brick  slate  WY    tri  G   g    N    .01  hedge  x:BWR    44
IE   Wd  Yd   4/4  wood  40  latin    english white  slate  WW+   dia  G   g    N    .02  stone  v:GWO    353
FR   Wd  Wd   3/10 holes 50  latin    french  cream  slate  WW+   tri  W   g    R    .02  hedge  v:BWR    33
NL   N   Wd   3/9  none  0   latin    dutch   brick  terra  YY+   tri  B   g    W    .01  hedge  h:RWB    31
BE   Wd  Ws   3/9  wood  35  latin    dutch   brick  rust   WW+   tri  B   g    W    .01  hedge  v:KYR    32
LU   Wd  Ws   3/9  none  0   latin    french  cream  slate  YY+   tri  Y   g    W    .01  hedge  h:RWL    352
DE   Wd  Ws   4/8  none  0   latin    german  timber red    WW+   tri  Y   g    K    .01  hedge  h:KRY    49
AT   Wd  Ws   4/6  wood  50  latin    german  white  brown  WW+   tri  B   g    K    .02  rail   h:RWR    43
CH   Wd  Ws   3/6  none  0   latin    german  cream  brown  WW    tri  B   g    K    .01  wood   x:RWW    41
IT   Wd  Ws   3/5  conc  45  latin    italian ochre  terra  WW+   tri  B   g    R    .03  wall   v:GWR    39
ES   Wd  Ws   4/6  holes 50  latin    spanish white  terra  WW+   tri  W   g    Y    .04  wall   h:RYYR   34
PT   Wd  Ws   3/6  holes 45  latin    iberian white  terra  WW+   tri  W   g    R    .04  wall   v:GRR    351
GR   Wd  Ws   3/6  wood  45  greek    greek   white  flat   WW+   ytri B   W    R    .08  wall   c:BBWBW  30
PL   Wd  Ws   4/8  conc  45  latin    slavic  panel  red    WW+   ytri G   g    R    .05  wire   h:WR     48
CZ   Wd  Ws   3/6  conc  50  latin    slavic  cream  terra  WW+   tri  B   g    W    .02  hedge  t:BWR    420
SK   Wd  Ws   3/6  conc  50  latin    slavic  panel  brown  WW+   tri  B   g    W    .03  wire   h:WBR    421
HU   Wd  Ws   4/8  conc  45  latin    magyar  ochre  terra  WW+   tri  B   g    R    .05  wire   h:RWG    36
SI   Wd  Ws   4/8  wood  45  latin    slavic  cream  terra  WW+   tri  B   g    R    .03  wood   h:WBR    386
HR   Wd  Ws   4/8  wood  45  latin    slavic  ochre  terra  WW+   tri  Y   g    R    .05  stone  h:RWB    385
RO   Wd  Ws   3/6  holes 40  latin    vlach   pastel tin    WW+   tri  B   W    R    .08  wall   v:BYR    40
BG   Wd  Ws   3/6  conc  45  cyrillic slavic  block  terra  WW+   tri  B   W    R    .08  wall   h:WGR    359
RS   Wd  Ws   3/6  conc  45  cyrillic slavic  block  terra  WW    tri  Y   g    R    .06  wire   h:RBW    381
AL   Wd  Ws   3/6  conc  40  latin    slavic  pastel flat   WW    tri  W   Y    N    .15  wall   d:RK     355
UA   Wd  Ws   3/9  conc  40  cyrillic slavic  panel  rust   WW    tri  B   W    N    .12  wood   h:LY     380
RU   Wd  Ws   2/6  conc  45  cyrillic slavic  log    green  WW    tri  B   W    K    .20  wood   h:WBR    7
EE   Wd  Ws   3/9  wood  50  latin    finnic  siding dark   WW+   tri  B   N    W    .15  wood   h:LKW    372
LV   Wd  Ws   3/9  wood  50  latin    baltic  log    dark   WW+   tri  B   N    W    .20  wood   h:PWP    371
LT   Wd  Ws   3/9  conc  50  latin    baltic  siding rust   WW+   tri  B   N    W    .12  wire   h:YGR    370
GE   Wd  Ws   3/6  metal 40  georgian slavic  block  rust   WW    tri  B   W    N    .20  metal  x:WRR    995
AM   Wd  Ws   3/6  metal 40  armenian slavic  stone  tin    WW    tri  B   W    N    .20  stone  h:RBO    374
TR   Wd  Ws   3/6  conc  50  latin    turkic  panel  terra  WW+   tri  B   Y    N    .08  wall   d:RW     90
IL   Wd  Ys   3/9  metal 50  hebrew   turkic  white  flat   YY+   tri  G   R    N    .05  wall   h:BWWWB  972
JO   Wd  Ys   3/9  metal 50  arabic   turkic  sand   flat   WW    tri  G   K    N    .10  wall   t:RKWG   962
AE   Wd  Ys   3/9  metal 60  arabic   turkic  sand   flat   WW    tri  G   K    N    .08  wall   t:RGWK   971
EG   Wd  Ys   3/9  metal 60  arabic   turkic  block  flat   LL    tri  B   K    N    .15  wall   h:RWK    20
SA   Wd  Ys   3/9  metal 60  arabic   turkic  sand   flat   WW    tri  G   Y    N    .10  wall   d:GW     966
MA   Wd  Ws   3/6  conc  55  arabic   french  ochre  flat   WW    tri  B   R    N    .15  wall   d:RG     212
TN   Wd  Ys   3/6  conc  55  arabic   french  white  flat   KK    tri  B   R    N    .10  wall   d:RW     216
IR   Wd  Ys   3/9  conc  50  arabic   turkic  mud    flat   WW+   tri  B   Y    N    .15  wall   h:GWR    98
KZ   Wd  Ws   3/9  wood  45  cyrillic turkic  panel  blue   WW    tri  B   W    N    .30  metal  d:LY     7
MN   Wd  N    3/9  wood  50  cyrillic turkic  tin    green  WW    tri  B   N    N    .60  wood   v:RBR    976
KE   Wd  Ys   3/6  wood  50  latin    swahili block  tin    WY    tri  B   K    N    .35  wire   h:KWRWG  254
TZ   Wd  Ws   3/6  wood  55  latin    swahili mud    tin    WY    tri  B   N    N    .40  none   h:GYKYL  255
UG   Wd  Ws   3/6  wood  45  latin    swahili brick  tin    WY    tri  W   K    N    .45  none   h:KYRKYR 256
RW   Wd  Ws   3/6  wood  45  latin    swahili ochre  terra  YY    tri  B   W    N    .30  hedge  h:LLYG   250
NG   Wd  N    3/6  wood  45  latin    african ochre  rust   WW    tri  G   K    N    .35  wall   v:GWG    234
GH   Wd  N    3/6  wood  50  latin    african pastel rust   YY    tri  G   K    N    .35  wall   h:RYG    233
SN   Wd  N    3/6  wood  55  latin    french  grey   flat   WW    tri  B   N    N    .35  wall   v:GYR    221
ET   Wd  N    3/6  wood  50  ethiopic swahili mud    tin    YY    tri  G   K    N    .50  stone  h:GYR    251
MG   Wd  N    3/6  wood  50  latin    french  brick  thatch KK    tri  B   N    N    .45  none   v:WRG    261
ZA   Wd  Ys   3/9  wood  55  latin    dutch   brick  red    WY    tri  G   g    N    .15  wire   t:GRWB   27
BW   Wd  Ys   3/9  wood  60  latin    english mud    thatch YY    dia  B   N    N    .40  wire   h:LLKLL  267
NA   Wd  Ys   3/9  wood  60  latin    german  sand   tin    YY    tri  G   N    N    .55  wire   h:BRG    264
IN   Wd  Ws   3/6  conc  40  nagari   hindi   pastel flat   WY    tri  G   Y    N    .20  wall   h:OWG    91
PK   Wd  Ys   3/6  conc  40  arabic   hindi   block  flat   WW    tri  G   Y    N    .25  wall   v:WGGG   92
NP   Wd  Ws   3/6  wood  40  nagari   hindi   brick  flat   KK    tri  G   Y    N    .35  stone  d:RB     977
BD   Wd  Ws   3/6  conc  40  bengali  hindi   block  tin    WW    tri  G   W    N    .25  bamboo d:GR     880
LK   Wd  Ws   3/6  conc  40  sinhala  hindi   pastel terra  YY    dia  G   K    N    .15  wall   v:GOP    94
TH   Yd  Ws   3/9  conc  40  thai     tai     white  blue   WW    dia  G   W    K    .10  wall   h:RWBBWR 66
KH   Yd  Ws   3/9  conc  45  khmer    tai     grey   rust   WW    dia  B   W    N    .40  none   h:BRRB   855
LA   Yd  Ws   3/9  conc  45  lao      tai     white  rust   YY    dia  B   W    K    .40  bamboo h:RBBR   856
MM   Yd  Ws   3/9  conc  45  burmese  tai     log    tin    KK    dia  B   W    N    .35  bamboo h:YGR    95
VN   Yd  Ws   3/6  conc  40  latin    viet    pastel red    WW    ytri B   R    W    .15  wall   d:RY     84
MY   Wd  Ws   4/6  conc  45  latin    malay   cream  terra  KK    dia  G   K    K    .05  wall   c:BRWRW  60
ID   Wd  Ws   3/5  conc  40  latin    malay   cream  terra  KK    dia  G   K    W    .12  wall   h:RW     62
PH   Wd  Ws   3/6  wood  40  latin    spanish grey   tin    WW    tri  G   Y    N    .12  wall   t:WBR    63
JP   Wd  Ws   5/5  jp    30  kana     tai     tile   blue   WY    dia  B   g    O    .02  wall   d:WR     81
KR   Yd  Ws   3/5  conc  35  hangul   tai     grey   green  WW    ytri G   g    R    .02  wall   d:WB     82
TW   Yd  Ws   4/6  conc  35  cjk      tai     tile   tin    WW    tri  G   R    R    .02  wall   c:BRRR   886
CN   Yd  Ws   4/6  conc  45  cjk      tai     panel  flat   BB    ytri B   g    R    .08  wall   d:RY     86
AU   Wd  Ws   3/9  wood  55  latin    english brick  tin    YY    dia  G   N    R    .20  wire   c:RBB    61
NZ   Wd  Ws   3/7  wood  50  latin    english siding tin    WW    dia  G   N    R    .10  wood   c:WBB    64
US   Y=  Ws   3/9  woodt 45  latin    english siding dark   WW    dia  G   g    N    .08  wood   c:BRWRW  1
CA   Yd  Ws   3/6  woodt 50  latin    english siding brown  WW    dia  G   N    N    .12  wood   v:RWWR   1
MX   Yd  Ws   3/8  conc  45  latin    spanish pastel flat   WW    dia  G   Y    N    .12  wall   v:GWR    52
GT   Yd  Ws   3/6  wood  40  latin    spanish pastel tin    LL    dia  G   R    N    .25  wall   v:LWL    502
CR   Yd  Ws   3/6  conc  45  latin    spanish cream  tin    WW    dia  G   Y    N    .20  metal  h:BWRWB  506
DO   Yd  Ws   3/6  conc  40  latin    spanish pastel flat   WW    dia  G   Y    N    .15  wall   x:BWR    1
CO   Yd  Ws   3/5  conc  40  latin    spanish block  rust   YY    dia  G   Y    Y    .15  wall   h:YYBR   57
EC   Yd  Ws   3/9  conc  40  latin    spanish grey   flat   WW    dia  G   Y    Y    .18  wall   h:YYLR   593
PE   Yd  Ws   3/5  wood  45  latin    spanish mud    flat   WW    dia  G   Y    N    .25  wall   v:RWR    51
BO   Yd  Ws   3/5  wood  45  latin    spanish block  tin    WW    dia  G   Y    N    .35  wall   h:RYG    591
BR   Yd  Ws   4/8  conc  40  latin    iberian ochre  terra  WW    dia  G   W    N    .25  wall   d:GY     55
PY   Yd  Ws   3/9  conc  40  latin    spanish brick  terra  WW    dia  G   Y    N    .35  wood   h:RWB    595
AR   Yd  Ws   3/9  wood  55  latin    spanish white  flat   KK    dia  G   Y    N    .20  wire   h:LWL    54
CL   Wd  Ws   3/9  wood  50  latin    spanish siding rust   WW    dia  G   Y    N    .12  wood   c:BWR    56
UY   Yd  Ws   3/9  wood  50  latin    spanish cream  flat   WW    dia  G   W    N    .20  wire   c:YWBWBW 598
"""

LEFT_DRIVING = (
    "AG AI AU BB BD BM BN BS BT BW CC CK CX CY DM FJ FK GB GD GG GS GY HK HM ID IE IM IN IO JE JM JP KE KI "
    "KN KY LC LK LS MO MS MT MU MV MW MY MZ NA NF NP NR NU NZ PG PK PN SB SC SG SH SR SZ TC TH TK TL TO TT "
    "TV TZ UG VC VG VI WS ZA ZM ZW"
)
"""ISO codes of the countries and territories that drive on the left."""

REGIONS: dict[str, str] = {
    "nordic": "NO SE FI DK IS FO AX SJ GL BV",
    "baltic": "EE LV LT",
    "british": "GB IE IM JE GG",
    "western": "FR NL BE LU MC PM WF NC PF TF BL MF",
    "alpine": "DE AT CH LI",
    "southern": "IT ES PT GR SM VA MT CY AD GI",
    "central": "PL CZ SK HU SI HR",
    "balkan": "RO BG RS AL BA ME MK XK MD",
    "eastern": "UA RU BY",
    "caucasus": "GE AM AZ",
    "levant": "TR IL JO LB SY PS IQ",
    "gulf": "AE SA QA BH KW OM YE",
    "maghreb": "EG MA TN DZ LY EH SD",
    "steppe": "KZ MN KG UZ TM TJ",
    "iranian": "IR AF",
    "west africa": "NG GH SN GM GN GW SL LR CI BF ML NE TG BJ MR CV ST",
    "central africa": "CM CF TD GQ GA CG CD AO",
    "east africa": "KE TZ UG RW BI",
    "horn": "ET ER DJ SO SS",
    "indian ocean": "MG MU RE YT KM SC IO",
    "southern africa": "ZA BW NA ZW ZM MW MZ SZ LS SH",
    "south asia": "IN PK NP BD LK BT MV",
    "indochina": "TH KH LA MM VN",
    "malay": "MY ID PH SG BN TL",
    "east asia": "JP KR TW CN HK MO KP",
    "oceania": "AU NZ NF CX CC HM AQ GS",
    "pacific": "PG FJ SB VU WS TO KI TV NR PW FM MH CK NU TK PN AS GU MP UM",
    "north america": "US CA BM FK",
    "central america": "MX GT CR HN SV NI PA BZ",
    "caribbean": "DO CU HT JM PR BS BB TT GD LC VC DM AG KN AI VG VI KY TC MS GP MQ AW CW SX BQ",
    "andes": "CO EC PE BO VE",
    "amazon": "BR GY SR GF",
    "southern cone": "AR CL UY PY",
}
"""Regions of countries that share a look; every ISO 3166-1 alpha-2 code is in exactly one."""

DONORS: dict[str, str] = {
    "central africa": "NG TZ SN",
    "indian ocean": "MG KE",
    "pacific": "PH ID AU",
    "caribbean": "DO CO MX",
}
"""Where a region without rows of its own (or with too few) borrows its looks."""

SCRIPT_OVERRIDES: dict[str, str] = {
    "BY": "cyrillic", "MK": "cyrillic", "KG": "cyrillic", "TJ": "cyrillic", "BA": "latin", "ME": "latin",
    "XK": "latin", "MD": "latin", "AL": "latin", "AZ": "latin", "UZ": "latin", "TM": "latin", "AF": "arabic",
    "LB": "arabic", "SY": "arabic", "PS": "arabic", "IQ": "arabic", "YE": "arabic", "DZ": "arabic",
    "LY": "arabic", "SD": "arabic", "EH": "arabic", "MR": "arabic", "DJ": "latin", "SO": "latin",
    "SS": "latin", "ER": "ethiopic", "BT": "nagari", "MV": "sinhala", "CY": "greek", "HK": "cjk",
    "MO": "cjk", "KP": "hangul", "SG": "latin", "BN": "latin", "TL": "latin", "MT": "latin",
}  # fmt: skip
"""Scripts of countries that are not in the table and differ from their neighbours."""
