"""German sentences are read as a person reads them."""

import pytest

from tests.text.languages.sentences import read_table
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

# What is written, and below it what is said.
SENTENCES = """
Am 3. Oktober 1990 wurde Deutschland wiedervereinigt.
    am dritten oktober neunzehnhundertneunzig wurde deutschland wiedervereinigt.
Der 2. Weltkrieg endete 1945.
    der zweite weltkrieg endete neunzehnhundertfünfundvierzig.
Sie wurde am 21.03.1985 in Köln geboren.
    sie wurde am einundzwanzigsten märz neunzehnhundertfünfundachtzig in köln geboren.
Er starb am 1. Januar 1900.
    er starb am ersten januar neunzehnhundert.
Heute ist Montag, der 12. Mai 2025.
    heute ist montag, der zwölfte mai zweitausendfünfundzwanzig.
Wir treffen uns um 14:30 Uhr.
    wir treffen uns um vierzehn uhr dreißig.
Der Zug fährt um 8:15 ab.
    der zug fährt um acht uhr fünfzehn ab.
Um 1 Uhr nachts war alles still.
    um ein uhr nachts war alles still.
Das Büro ist von 9-17 Uhr geöffnet.
    das büro ist von neun bis siebzehn uhr geöffnet.
Die Sitzung dauert von 14:00-15:30 Uhr.
    die sitzung dauert von vierzehn uhr bis fünfzehn uhr dreißig.
Das kostet 3,50 €.
    das kostet drei euro fünfzig.
Ein Kaffee für 2 € und ein Tee für 1 €.
    ein kaffee für zwei euro und ein tee für einen euro.
Das Haus kostet 1,5 Mio. €.
    das haus kostet eins komma fünf millionen euro.
Die Firma machte 3 Mrd. Euro Gewinn.
    die firma machte drei milliarden euro gewinn.
Der Gewinn lag bei 5 Mio. €.
    der gewinn lag bei fünf millionen euro.
Es waren nur 0,99 €.
    es waren nur neunundneunzig cent.
Das Buch kostet $20 oder £15.
    das buch kostet zwanzig dollar oder fünfzehn pfund.
50 % der Wähler blieben zu Hause.
    fünfzig prozent der wähler blieben zu hause.
Eine 20%ige Lösung, ein 5 %iger Anteil, für 20.- €.
    eine zwanzigprozentige lösung, ein fünfprozentiger anteil, für zwanzig euro.
Schreiben Sie an info@mein-laden.de.
    schreiben sie an info at mein bindestrich laden punkt de.
Sehen Sie auf www.beispiel.at/hilfe nach.
    sehen sie auf w w w punkt beispiel punkt at schrägstrich hilfe nach.
Die Quote stieg um 2,5 Prozent auf 7,5%.
    die quote stieg um zwei komma fünf prozent auf sieben komma fünf prozent.
Pi ist ungefähr 3,14159.
    pi ist ungefähr drei komma eins vier eins fünf neun.
In Berlin leben 3.664.088 Menschen.
    in berlin leben drei millionen sechshundertvierundsechzigtausendachtundachtzig menschen.
Auf der Welt leben 8 Milliarden Menschen.
    auf der welt leben acht milliarden menschen.
Der Berg ist 2.962 m hoch.
    der berg ist zweitausendneunhundertzweiundsechzig meter hoch.
Die Schweiz zählt 8'700'000 Einwohner.
    die schweiz zählt acht millionen siebenhunderttausend einwohner.
Der Erste Weltkrieg dauerte von 1914-1918.
    der erste weltkrieg dauerte von neunzehnhundertvierzehn bis neunzehnhundertachtzehn.
Bitte 10-20 Minuten warten.
    bitte zehn bis zwanzig minuten warten.
Seiten 3–5 fehlen.
    seiten drei bis fünf fehlen.
Tempo 30 oder 120 km/h?
    tempo dreißig oder einhundertzwanzig kilometer pro stunde?
Er wiegt 82,5 kg.
    er wiegt zweiundachtzig komma fünf kilogramm.
Draußen sind es -5 °C.
    draußen sind es minus fünf grad celsius.
Die Wohnung hat 75 m² und 3 Zimmer.
    die wohnung hat fünfundsiebzig quadratmeter und drei zimmer.
Die Datei ist 1,5 GB groß.
    die datei ist eins komma fünf gigabyte groß.
Wir brauchen 1 kg Mehl, 250 g Butter und 1 l Milch.
    wir brauchen ein kilogramm mehl, zweihundertfünfzig gramm butter und ein liter milch.
Obst, z. B. Äpfel, Birnen usw.
    obst, zum beispiel äpfel, birnen und so weiter.
Dr. Müller und Prof. Schmidt, d. h. beide Ärzte.
    doktor müller und professor schmidt, das heißt beide ärzte.
Siehe Nr. 5, S. 12.
    siehe nummer fünf, seite zwölf.
Cäsar wurde 44 v. Chr. ermordet.
    cäsar wurde vierundvierzig vor christus ermordet.
Er wohnt ca. 3 km entfernt.
    er wohnt circa drei kilometer entfernt.
Die Bäcker & Söhne GmbH.
    die bäcker und söhne gmbh.
2 + 2 = 4
    zwei plus zwei gleich vier
10 - 3 = 7
    zehn minus drei gleich sieben
Nach § 5 und den §§ 7 und 8 gilt das.
    nach paragraf fünf und den paragrafen sieben und acht gilt das.
Wir sind die #1!
    wir sind die nummer eins!
Ludwig XIV. war König von Frankreich.
    ludwig der vierzehnte war könig von frankreich.
Das Schloss Ludwigs XIV. steht in Versailles.
    das schloss ludwigs des vierzehnten steht in versailles.
Unter Friedrich II. blühte Preußen auf.
    unter friedrich dem zweiten blühte preußen auf.
Elisabeth II. regierte 70 Jahre.
    elisabeth die zweite regierte siebzig jahre.
Lesen Sie Kapitel IV bis Kapitel VI.
    lesen sie kapitel vier bis kapitel sechs.
Im XX. Jahrhundert änderte sich alles.
    im zwanzigsten jahrhundert änderte sich alles.
Der II. Weltkrieg war furchtbar.
    der zweite weltkrieg war furchtbar.
Rufen Sie 030 123456 an.
    rufen sie null drei null, eins zwei drei vier fünf sechs an.
Tel. +49 89 98765
    telefon plus vier neun, acht neun, neun acht sieben sechs fünf
Er wurde im 19. Jahrhundert berühmt.
    er wurde im neunzehnten jahrhundert berühmt.
Beim 1. Mal klappte es nicht.
    beim ersten mal klappte es nicht.
Sie belegte den 3. Platz.
    sie belegte den dritten platz.
In der 2. Runde war Schluss.
    in der zweiten runde war schluss.
Das ist die 4. Auflage.
    das ist die vierte auflage.
Ein 2. Versuch ist erlaubt.
    ein zweiter versuch ist erlaubt.
Die 1., 2. und 3. Klasse feiern.
    die erste, zweite und dritte klasse feiern.
Vom 3. bis 5. Mai ist geschlossen.
    vom dritten bis fünften mai ist geschlossen.
Das 1. Kapitel ist kurz.
    das erste kapitel ist kurz.
Berlin, 9. November 1989
    berlin, neunter november neunzehnhundertneunundachtzig
Sie kommt am Freitag, dem 13. Juni.
    sie kommt am freitag, dem dreizehnten juni.
Der Urlaub beginnt ab 1. August.
    der urlaub beginnt ab ersten august.
Das Spiel endete 3:2.
    das spiel endete drei zu zwei.
In den 90er Jahren war das so.
    in den neunziger jahren war das so.
Die Musik der 1960er gefällt mir.
    die musik der neunzehnhundertsechziger gefällt mir.
Ein 20-jähriger Mann und eine 5-köpfige Familie.
    ein zwanzigjähriger mann und eine fünfköpfige familie.
Das geschah im Jahr 2001.
    das geschah im jahr zweitausendeins.
Seit 1871 ist Berlin Hauptstadt.
    seit achtzehnhunderteinundsiebzig ist berlin hauptstadt.
1492 entdeckte Kolumbus Amerika.
    vierzehnhundertzweiundneunzig entdeckte kolumbus amerika.
Es kamen 1200 Gäste.
    es kamen eintausendzweihundert gäste.
Ich habe 1 Bruder und 2 Schwestern.
    ich habe einen bruder und zwei schwestern.
In 1 Stunde bin ich da.
    in einer stunde bin ich da.
Wir warten seit 1 Woche.
    wir warten seit einer woche.
Gib mir 1/2 Liter Wasser.
    gib mir einen halben liter wasser.
Es fehlen 3/4 der Teile.
    es fehlen drei viertel der teile.
Das dauert 2½ Stunden.
    das dauert zweieinhalb stunden.
Version 2.0.1 ist da.
    version zwei punkt null punkt eins ist da.
Agent 007 ist zurück.
    agent null null sieben ist zurück.
Das sind 21 Äpfel und 101 Birnen.
    das sind einundzwanzig äpfel und einhunderteins birnen.
Meine Adresse ist max@example.
    meine adresse ist max at example.
Das Konzert am 24.12. fällt aus.
    das konzert am vierundzwanzigsten dezember fällt aus.
Der Termin ist der 05.06.2024.
    der termin ist der fünfte juni zweitausendvierundzwanzig.
Die Frist läuft bis 31.12.2023.
    die frist läuft bis einunddreißigsten dezember zweitausenddreiundzwanzig.
Der Vertrag vom 2024-02-29 gilt.
    der vertrag vom neunundzwanzigsten februar zweitausendvierundzwanzig gilt.
Er lief 100 m in 9,58 s.
    er lief einhundert meter in neun komma fünf acht sekunden.
Das Flugzeug fliegt mit 900 km/h in 10.000 m Höhe.
    das flugzeug fliegt mit neunhundert kilometer pro stunde in zehntausend meter höhe.
Der Motor hat 150 PS und 110 kW.
    der motor hat einhundertfünfzig ps und einhundertzehn kilowatt.
Es gibt Strom mit 230 V und 50 Hz.
    es gibt strom mit zweihundertdreißig volt und fünfzig hertz.
Wasser kocht bei 100°C.
    wasser kocht bei einhundert grad celsius.
Zimmer 101 liegt im 1. Stock.
    zimmer einhunderteins liegt im ersten stock.
Am 1. und 2. Weihnachtstag ist zu.
    am ersten und zweiten weihnachtstag ist zu.
Der 1. FC Köln spielt heute.
    der erste fc köln spielt heute.
Die Temperatur fiel auf -12,5 Grad.
    die temperatur fiel auf minus zwölf komma fünf grad.
Es ist 0:05 Uhr.
    es ist null uhr fünf.
Um 21.45 Uhr kommt ein Film.
    um einundzwanzig uhr fünfundvierzig kommt ein film.
Das Verhältnis ist 16:9.
    das verhältnis ist sechzehn zu neun.
Ab 18 Jahren!
    ab achtzehn jahren!
Er hat 1.000.000 € gewonnen.
    er hat eine million euro gewonnen.
Die Hauptstr. 5 in St. Gallen
    die hauptstraße fünf in sankt gallen
Mit 1 Million Euro wäre ich reich.
    mit einer million euro wäre ich reich.
Karl V. war Kaiser.
    karl der fünfte war kaiser.
König Karl I. und Heinrich VIII. herrschten.
    könig karl der erste und heinrich der achte herrschten.
Der I. Akt ist kurz.
    der erste akt ist kurz.
Das Turnier findet 2024/25 statt.
    das turnier findet zweitausendvierundzwanzig fünfundzwanzig statt.
Kapitel 1, Seite 3
    kapitel eins, seite drei
Das kostet 5 € - 10 €.
    das kostet fünf euro bis zehn euro.
Ein Brett von 4x4 cm.
    ein brett von vier mal vier zentimeter.
Der Film (1939-1945)
    der film (neunzehnhundertneununddreißig bis neunzehnhundertfünfundvierzig)
Es sind 1.234,56 €.
    es sind eintausendzweihundertvierunddreißig euro sechsundfünfzig.
Der 1. Mai und der 3. Oktober sind frei.
    der erste mai und der dritte oktober sind frei.
Die 5 l Wasser sind weg.
    die fünf liter wasser sind weg.
Geöffnet von 9.30-12.00 Uhr.
    geöffnet von neun uhr dreißig bis zwölf uhr.
Sie wohnt in der Goethestr. 12, 10115 Berlin.
    sie wohnt in der goethestraße zwölf, eins null eins eins fünf berlin.
Die 68er gingen auf die Straße.
    die achtundsechziger gingen auf die straße.
1. Bundesliga
    erste bundesliga
Das kostet nur 5,- €.
    das kostet nur fünf euro.
Beethovens 9. Sinfonie
    beethovens neunte sinfonie
Sein 50. Geburtstag war am Dienstag, 5. März.
    sein fünfzigster geburtstag war am dienstag, fünften märz.
Vom 24.12. bis 2.1. ist zu.
    vom vierundzwanzigsten dezember bis zweiten januar ist zu.
Karten unter 0171 2345678.
    karten unter null eins sieben eins, zwei drei vier fünf sechs sieben acht.
Wir fahren auf der A 7.
    wir fahren auf der a sieben.
Der Angeklagte Peter V. schwieg.
    der angeklagte peter v. schwieg.
Der Hof Karls V. war groß.
    der hof karls des fünften war groß.
Katharina II. und Pius IX.
    katharina die zweite und pius der neunte.
Ich habe 3. Danach ging ich.
    ich habe drei. danach ging ich.
Hier leben 5 000 000 Menschen, 1 Katze, 1 Hund und 1 Kind.
    hier leben fünf millionen menschen, eine katze, ein hund und ein kind.
Es kostet 1,01 € oder $1,250.50.
    es kostet ein euro eins oder eintausendzweihundertfünfzig dollar fünfzig.
In den 90ern kostete es 3,50 Euro, heute ist der 5.
    in den neunzigern kostete es drei euro fünfzig, heute ist der fünfte.
Im 19./20. Jahrhundert kam Fr. Müller mit v1.2.3.
    im neunzehnten zwanzigsten jahrhundert kam frau müller mit v eins punkt zwei punkt drei.
Es kostet CHF 19.90, 5 €/kg inkl. MwSt. und dauert 5 Min.
    es kostet neunzehn franken neunzig, fünf euro pro kilogramm inklusive mehrwertsteuer und dauert fünf minuten.
Die Umlage betrug 6,405 ct/kWh.
    die umlage betrug sechs komma vier null fünf cent pro kilowattstunde.
Strom kostet 0,289 €/kWh und Diesel 1,759 €.
    strom kostet null komma zwei acht neun euro pro kilowattstunde und diesel eins komma sieben fünf neun euro.
Die Karte kostet ¥1,250-1,500.
    die karte kostet eintausendzweihundertfünfzig bis eintausendfünfhundert yen.
Das Haus kostet $1,250 und 2,375 Mrd. Euro.
    das haus kostet eintausendzweihundertfünfzig dollar und zwei komma drei sieben fünf milliarden euro.
Sie ist 1,80 m, die Kinder sind 1,50-1,80 m groß.
    sie ist ein meter achtzig, die kinder sind eins komma fünf null bis eins komma acht null meter groß.
Ausgabe 03/2024, geöffnet von 08-12 Uhr.
    ausgabe null drei zweitausendvierundzwanzig, geöffnet von null acht bis zwölf uhr.
Das war am 05/11/2024.
    das war am fünften november zweitausendvierundzwanzig.
Der Philosoph I. Kant, ein Film nach 08/15 und der X. Parteitag.
    der philosoph i. kant, ein film nach nullachtfünfzehn und der zehnte parteitag.
Das sagte Peter V. Der Zeuge schwieg im I. Akt.
    das sagte peter v. der zeuge schwieg im ersten akt.
Die Karte im Maßstab 1:25.000, jene 1:25 000 oder 1:1000.
    die karte im maßstab eins zu fünfundzwanzigtausend, jene eins zu fünfundzwanzigtausend oder eins zu eintausend.
Kiel gewann 24:22, Bonn siegte mit 21:19.
    kiel gewann vierundzwanzig zu zweiundzwanzig, bonn siegte mit einundzwanzig zu neunzehn.
Um 14:30 war es aus.
    um vierzehn uhr dreißig war es aus.
Er lief 3:45 Minuten, dann 1:45,32 Minuten.
    er lief drei fünfundvierzig minuten, dann eins fünfundvierzig komma drei zwei minuten.
Die Fahrt dauert 2:05:30 Stunden, los geht es um 16:30 Uhr.
    die fahrt dauert zwei null fünf dreißig stunden, los geht es um sechzehn uhr dreißig.
König Charles III. wurde gekrönt. Zar Nikolaus II. dankte ab.
    könig charles der dritte wurde gekrönt. zar nikolaus der zweite dankte ab.
Am Hof Ludwigs XIV. und Elisabeths II. lebte man gut.
    am hof ludwigs des vierzehnten und elisabeths der zweiten lebte man gut.
Das ist Jan. Er lacht. Am 3. Jan. kam er, im Jan. 2020.
    das ist jan. er lacht. am dritten januar kam er, im januar zweitausendzwanzig.
D. h. wir gehen. Vgl. Seite 3. Ca. 30 Leute, Bücher o. Ä. und u. Ä. gibt es.
    das heißt wir gehen. vergleiche seite drei. circa dreißig leute, bücher oder ähnliches und und ähnliches gibt es.
Das ist Max. Er lacht. Es sind max. 5 Leute.
    das ist max. er lacht. es sind maximal fünf leute.
Z. B. M. E. Müller, m. E. gut.
    zum beispiel m. e. müller, meines erachtens gut.
Das sind 500 km2, 3 m3 oder 3 mm2.
    das sind fünfhundert quadratkilometer, drei kubikmeter oder drei quadratmillimeter.
Etwa 10⁶ Menschen sind da.
    etwa zehn hoch sechs menschen sind da.
Sie spielen im 4-4-2, die Zahlen waren 10-12-14.
    sie spielen im vier-vier-zwei, die zahlen waren zehn, zwölf, vierzehn.
Rufen Sie +49 (0)30 1234567 an.
    rufen sie plus vier neun, null, drei null, eins zwei drei vier fünf sechs sieben an.
2 EL Zucker und 1 TL Salz. § 5 Abs. 1 S. 2 gilt, siehe S. 3.
    zwei esslöffel zucker und ein teelöffel salz. paragraf fünf absatz eins satz zwei gilt, siehe seite drei.
Hartz IV wurde abgeschafft.
    hartz vier wurde abgeschafft.
1 Dose Tomaten, 1 Zwiebel, 1 Prise Salz, 1 Kaffee mit 1 Gurke.
    eine dose tomaten, eine zwiebel, eine prise salz, ein kaffee mit einer gurke.
Es sind 9,81 m/s2 und 10⁻⁶ m, also 5².
    es sind neun komma acht eins meter pro quadratsekunde und zehn hoch minus sechs meter, also fünf quadrat.
5 km3.
    fünf kubikkilometer.
—15 Jahre, sagte sie.
    - fünfzehn jahre, sagte sie.
Nach 1 ½ Stunden, vor 1½ Jahren, also 1½.
    nach eineinhalb stunden, vor eineinhalb jahren, also eineinhalb.
Nach 1-2 Wochen, in 1-2 Tagen oder 1 bis 2 h.
    nach ein bis zwei wochen, in ein bis zwei tagen oder ein bis zwei stunden.
Der 3-1 Sieg, das 1:1 Unentschieden, ein 3 : 2.
    der drei zu eins sieg, das eins zu eins unentschieden, ein drei zu zwei.
Die 1-Zimmer-Wohnung und das Formel-1-Rennen.
    die ein-zimmer-wohnung und das formel-eins-rennen.
Die 2:1-Heim-Niederlage um 8 : 30 Uhr in Raum 1-Ost-Nord.
    die zwei zu eins-heim-niederlage um acht : dreißig uhr in raum eins-ost-nord.
Ein 3er BMW, ein 5er-Pack und lauter 1er auf dem 8000er.
    ein dreier bmw, ein fünfer-pack und lauter einser auf dem achttausender.
Der CO₂-Ausstoß sinkt, von CO₂ 400 ppm auf 10₁₀.
    der co zwei-ausstoß sinkt, von co zwei vierhundert ppm auf zehn zehn.
Über 1 Million Menschen, auf über 1 Mrd. Euro, nach über 1 Mio. Jahren.
    über eine million menschen, auf über eine milliarde euro, nach über einer million jahren.
Von 8.30 bis 12.00 Uhr oder zwischen 8.30 und 9 Uhr.
    von acht uhr dreißig bis zwölf uhr oder zwischen acht uhr dreißig und neun uhr.
Ich habe 1 Schwester und komme mit 1 oder 2 Freunden am 3.Mai, u. s. w.
    ich habe eine schwester und komme mit ein oder zwei freunden am dritten mai, und so weiter.
Ludwig XIV und Peter II bei den sog. Experten.
    ludwig der vierzehnte und peter ii bei den sogenannten experten.
Ein Pass für US-$ 500 und 1/2 Kilo Mehl.
    ein pass für fünfhundert dollar und ein halbes kilo mehl.
"""


@pytest.mark.parametrize(("written", "spoken"), read_table(SENTENCES))
def test_sentences_are_read_as_a_person_reads_them(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "de") == spoken
