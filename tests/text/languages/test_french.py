"""French sentences are read as a person reads them."""

import pytest

from tests.text.languages.sentences import read_table
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

# What is written, and below it what is said.
SENTENCES = """
La prise de la Bastille a eu lieu le 14/07/1789.
    la prise de la bastille a eu lieu le quatorze juillet mille sept cent quatre-vingt-neuf.
Le 14 juillet 1789, le peuple se soulève.
    le quatorze juillet mille sept cent quatre-vingt-neuf, le peuple se soulève.
Le 1er mai est férié.
    le premier mai est férié.
Rendez-vous le 1 janvier 2025.
    rendez-vous le premier janvier deux mille vingt-cinq.
Il est né le 03.10.1990 à Lyon.
    il est né le trois octobre mille neuf cent quatre-vingt-dix à lyon.
Le train part à 14h30.
    le train part à quatorze heures trente.
Écrivez à info@exemple.fr.
    écrivez à info arobase exemple point fr.
On déjeune à 12 h 15.
    on déjeune à douze heures quinze.
Le magasin ouvre à 8 h et ferme à 21 h.
    le magasin ouvre à huit heures et ferme à vingt et une heures.
Il est 1h du matin.
    il est une heure du matin.
La séance commence à 20:45.
    la séance commence à vingt heures quarante-cinq.
Le film dure 1h45.
    le film dure une heure quarante-cinq.
Il a plu de 9h à 11h30.
    il a plu de neuf heures à onze heures trente.
Ouvert de 8h-12h.
    ouvert de huit heures à douze heures.
À 0h05, tout était calme.
    à zéro heure cinq, tout était calme.
Le café coûte 3,50 €.
    le café coûte trois euros cinquante.
Un pain à 1 € et un gâteau à 21 €.
    un pain à un euro et un gâteau à vingt et un euros.
Cela fait 1,21 €.
    cela fait un euro vingt et un.
Il ne reste que 0,80 €.
    il ne reste que quatre-vingts centimes.
Elle a gagné 5 M€.
    elle a gagné cinq millions d'euros.
Le projet coûte 2,5 millions d'euros.
    le projet coûte deux virgule cinq millions d'euros.
La dette atteint 3 milliards €.
    la dette atteint trois milliards d'euros.
Le livre vaut $20 ou £15.
    le livre vaut vingt dollars ou quinze livres.
50 % des Français ont voté.
    cinquante pour cent des français ont voté.
La hausse est de 2,5 % sur un an.
    la hausse est de deux virgule cinq pour cent sur un an.
Pi vaut environ 3,14.
    pi vaut environ trois virgule quatorze.
Le taux est de 0,05 %.
    le taux est de zéro virgule zéro cinq pour cent.
La distance exacte est 3,14159.
    la distance exacte est trois virgule un quatre un cinq neuf.
Paris compte 2 165 423 habitants.
    paris compte deux millions cent soixante-cinq mille quatre cent vingt-trois habitants.
Le prix est de 1.250 euros.
    le prix est de mille deux cent cinquante euros.
Il y a 80 personnes et 200 chaises.
    il y a quatre-vingts personnes et deux cents chaises.
80 000 spectateurs étaient là.
    quatre-vingt mille spectateurs étaient là.
Elle a 21 ans.
    elle a vingt et un ans.
Il y a 21 femmes et 31 hommes.
    il y a vingt et une femmes et trente et un hommes.
Une équipe de 1 personne.
    une équipe d'une personne.
La guerre de 1914-1918 fut terrible.
    la guerre de mille neuf cent quatorze à mille neuf cent dix-huit fut terrible.
Comptez 10-15 minutes.
    comptez dix à quinze minutes.
Lisez les pages 3 à 5.
    lisez les pages trois à cinq.
Le match s'est terminé 3-0.
    le match s'est terminé trois à zéro.
Il fait -5 °C ce matin.
    il fait moins cinq degrés celsius ce matin.
La vitesse est limitée à 80 km/h.
    la vitesse est limitée à quatre-vingts kilomètres à l'heure.
Il pèse 82,5 kg.
    il pèse quatre-vingt-deux virgule cinq kilogrammes.
L'appartement fait 75 m² et 3 pièces.
    l'appartement fait soixante-quinze mètres carrés et trois pièces.
Il faut 1 kg de farine et 250 g de beurre.
    il faut un kilogramme de farine et deux cent cinquante grammes de beurre.
Le camion porte 1,5 t.
    le camion porte un virgule cinq tonne.
Le sommet est à 4 808 m.
    le sommet est à quatre mille huit cent huit mètres.
Le fichier fait 1,5 Go.
    le fichier fait un virgule cinq gigaoctet.
Il court 100 m en 9,58 s.
    il court cent mètres en neuf virgule cinquante-huit secondes.
La prise donne 230 V à 50 Hz.
    la prise donne deux cent trente volts à cinquante hertz.
L'eau bout à 100°C.
    l'eau bout à cent degrés celsius.
Louis XIV est le Roi-Soleil.
    louis quatorze est le roi-soleil.
François Ier et Henri IV étaient rois.
    françois premier et henri quatre étaient rois.
Napoléon III a régné.
    napoléon trois a régné.
Élisabeth II est morte en 2022.
    élisabeth deux est morte en deux mille vingt-deux.
Charles X fut le dernier.
    charles dix fut le dernier.
Au XXe siècle, tout change.
    au vingtième siècle, tout change.
Les XIXe et XXe siècles.
    les dix-neuvième et vingtième siècles.
La Ve République est née en 1958.
    la cinquième république est née en mille neuf cent cinquante-huit.
La IIe Guerre mondiale finit en 1945.
    la deuxième guerre mondiale finit en mille neuf cent quarante-cinq.
La Ire armée avance.
    la première armée avance.
Lisez le chapitre IV du tome II.
    lisez le chapitre quatre du tome deux.
C'est l'acte III, scène 2.
    c'est l'acte trois, scène deux.
Il habite au 2e étage.
    il habite au deuxième étage.
C'est la 3ème fois.
    c'est la troisième fois.
Elle est 1re de sa classe.
    elle est première de sa classe.
Le 21e arrondissement n'existe pas.
    le vingt et unième arrondissement n'existe pas.
La 2nde guerre mondiale.
    la seconde guerre mondiale.
Le 80e anniversaire approche.
    le quatre-vingtième anniversaire approche.
M. Dupont et Mme Durand sont là.
    monsieur dupont et madame durand sont là.
Mlle Petit et MM. Martin attendent.
    mademoiselle petit et messieurs martin attendent.
Le Dr Lefèvre reçoit le Pr Morel.
    le docteur lefèvre reçoit le professeur morel.
Des fruits, p. ex. des pommes, etc.
    des fruits, par exemple des pommes, et cetera.
Voir n° 5, p. 12.
    voir numéro cinq, page douze.
César est mort en 44 av. J.-C.
    césar est mort en quarante-quatre avant jésus-christ.
Dupond & fils
    dupond et fils
2 + 2 = 4
    deux plus deux égale quatre
10 - 3 = 7
    dix moins trois égale sept
Appelez le 01 23 45 67 89.
    appelez le zéro un, vingt-trois, quarante-cinq, soixante-sept, quatre-vingt-neuf.
Mon numéro est +33 6 12 34 56 78.
    mon numéro est plus trente-trois, six, douze, trente-quatre, cinquante-six, soixante-dix-huit.
Tél. 04.78.00.00.01
    téléphone zéro quatre, soixante-dix-huit, zéro zéro, zéro zéro, zéro un
Nous sommes le #1 !
    nous sommes le numéro un !
Ils étaient sept. Le 15 sept. 2020, ils partirent.
    ils étaient sept. le quinze septembre deux mille vingt, ils partirent.
Le code est 007.
    le code est zéro zéro sept.
Buvez 1/2 litre d'eau.
    buvez un demi-litre d'eau.
Il reste 3/4 du gâteau.
    il reste trois quarts du gâteau.
Attendez 2½ heures.
    attendez deux heures et demie.
La version 2.0.1 est sortie.
    la version deux point zéro point un est sortie.
Écrivez à max@example.
    écrivez à max arobase example.
C'est ouvert 24h/24 et 7j/7.
    c'est ouvert vingt-quatre heures sur vingt-quatre et sept jours sur sept.
Sa note est 9/10.
    sa note est neuf sur dix.
Les années 60 étaient belles.
    les années soixante étaient belles.
En 1995, il avait 15 ans.
    en mille neuf cent quatre-vingt-quinze, il avait quinze ans.
En l'an 2000, tout semblait possible.
    en l'an deux mille, tout semblait possible.
Il est né en 1871 et mort en 1922.
    il est né en mille huit cent soixante et onze et mort en mille neuf cent vingt-deux.
Il a 1 frère et 1 sœur.
    il a un frère et une sœur.
Le numéro 1 mondial.
    le numéro un mondial.
St-Étienne est loin.
    saint-étienne est loin.
71 plus 91 font 162.
    soixante et onze plus quatre-vingt-onze font cent soixante-deux.
Il y a 1 001 nuits.
    il y a mille une nuits.
300 000 km par seconde
    trois cent mille kilomètres par seconde
Cela coûte 99,90 €.
    cela coûte quatre-vingt-dix-neuf euros quatre-vingt-dix.
Le 11/11/1918 à 11h, tout s'arrêta.
    le onze novembre mille neuf cent dix-huit à onze heures, tout s'arrêta.
La chambre 101 est au 1er étage.
    la chambre cent un est au premier étage.
Selon l'article 5 et le § 3.
    selon l'article cinq et le paragraphe trois.
Il mesure 1,80 m.
    il mesure un mètre quatre-vingts.
En 1 minute et 1 seconde.
    en une minute et une seconde.
Les 3 l'ont vu à 5 m.
    les trois l'ont vu à cinq mètres.
Il y a 1 000 000 d'habitants.
    il y a un million d'habitants.
La dette est de 200 000 000 €.
    la dette est de deux cents millions d'euros.
Le prix va de 5 €-10 €.
    le prix va de cinq euros à dix euros.
Cela coûte 50 €/mois.
    cela coûte cinquante euros par mois.
Le 31/12, on danse.
    le trente et un décembre, on danse.
La saison 2024/25 commence.
    la saison deux mille vingt-quatre vingt-cinq commence.
Un plateau de 4x4 cm.
    un plateau de quatre fois quatre centimètres.
Prenez 2 de ces 3 pommes.
    prenez deux de ces trois pommes.
Il a 1,5 million d'amis.
    il a un virgule cinq million d'amis.
C'est la 1ère fois, et 1 fois suffit.
    c'est la première fois, et une fois suffit.
Il reste 3/4 h, non 1/2 h.
    il reste trois quarts d'heure, non une demi-heure.
Cela vaut 3 millions d'€.
    cela vaut trois millions d'euros.
Vol. 2, chap. III
    volume deux, chapitre trois
Mgr Martin est né en l'an 800.
    monseigneur martin est né en l'an huit cents.
Appelez le 06.12.34.56.78.
    appelez le zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit.
Du XVIe au XVIIIe siècle.
    du seizième au dix-huitième siècle.
Louis-Philippe Ier abdique.
    louis-philippe premier abdique.
20-25 °C l'été.
    vingt à vingt-cinq degrés celsius l'été.
Dans les années 1920.
    dans les années mille neuf cent vingt.
Il a payé $1,250.50.
    il a payé mille deux cent cinquante dollars cinquante.
C'est mon ex. Il lit une bd dans 5 min.
    c'est mon ex. il lit une bd dans cinq minutes.
Le kilo à 3€50, ou 3,50 euros, ou 5 €/kg, 2h30min après.
    le kilo à trois euros cinquante, ou trois euros cinquante, ou cinq euros par kilogramme, deux heures trente après.
Appelez le +33 (0)6 12 34 56 78, on gagne 2:1.
    appelez le plus trente-trois, six, douze, trente-quatre, cinquante-six, soixante-dix-huit, on gagne deux à un.
Il mesure 1,80 m, les portes de 1,50 à 1,80 m.
    il mesure un mètre quatre-vingts, les portes de un virgule cinquante à un virgule quatre-vingts mètre.
Cela coûte 2,375 milliards d'euros.
    cela coûte deux virgule trois cent soixante-quinze milliards d'euros.
L'article L. 121-1 du code et le tome L coûtent ¥1,250.
    l'article l. cent vingt et un à un du code et le tome cinquante coûtent mille deux cent cinquante yens.
Une carte au 1:25 000 ou au 1:1000, à 10:30.
    une carte au un à vingt-cinq mille ou au un à mille, à dix heures trente.
Karim M., 25 ans, lit E. M. Cioran.
    karim m., vingt-cinq ans, lit e. m. cioran.
M. Dupont, M. le maire, M. d'Ormesson, M. et Mme Gide.
    monsieur dupont, monsieur le maire, monsieur d'ormesson, monsieur et madame gide.
Env. 30 personnes. Cf. page 3. P. ex. ceci, max. 5 kg.
    environ trente personnes. confer page trois. par exemple ceci, maximum cinq kilogrammes.
Cela fait 500 km2, 3 m3 et 3 mm2.
    cela fait cinq cents kilomètres carrés, trois mètres cubes et trois millimètres carrés.
Le 1 000e match et le 10 000e.
    le millième match et le dix millième.
Il mesure 1m80 et joue en 4-4-2.
    il mesure un mètre quatre-vingts et joue en quatre-quatre-deux.
À 14:30:05, puis à 14:30:00.
    à quatorze heures trente minutes cinq secondes, puis à quatorze heures trente.
À 9,81 m/s², il y en a 10¹².
    à neuf virgule quatre-vingt-un mètres par seconde carrée, il y en a dix puissance douze.
C'est 10⁻⁶, et 5².
    c'est dix puissance moins six, et cinq au carré.
Ouvert de 20-2h, 8-10 h, 20h30-22h.
    ouvert de vingt à deux heures, huit à dix heures, vingt heures trente à vingt-deux heures.
5 km3.
    cinq kilomètres cubes.
—15 ans, dit-elle.
    - quinze ans, dit-elle.
Attendez 2 ½ heures.
    attendez deux heures et demie.
Le CO₂ du XXᵉ siècle.
    le co deux du vingtième siècle.
Le 1ᵉʳ mai, Mᵐᵉ Dupont habite au 2ᵉ étage, nᵒ 5.
    le premier mai, madame dupont habite au deuxième étage, numéro cinq.
En 2 h 05 min 30 s.
    en deux heures cinq minutes trente secondes.
Ouvert de 9h30 - 12h30, de 9:00 - 18:00.
    ouvert de neuf heures trente à douze heures trente, de neuf heures à dix-huit heures.
Dès 10h30 - 2 hommes, 18h00 - 3 heures de route, de 9h30 - 12 h.
    dès dix heures trente - deux hommes, dix-huit heures - trois heures de route, de neuf heures trente à douze heures.
Le 12/05/2020 - 12:30.
    le douze mai deux mille vingt - douze heures trente.
1 ou 2 fois, 1 petite fille et 1 ou 2 jours, dès le 3 avr. 2020.
    une ou deux fois, une petite fille et un ou deux jours, dès le trois avril deux mille vingt.
La 1/2 finale après le 1/8 de finale, la XLIIe.
    la demi-finale après le huitième de finale, la quarante-deuxième.
"""


@pytest.mark.parametrize(("written", "spoken"), read_table(SENTENCES))
def test_sentences_are_read_as_a_person_reads_them(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "fr") == spoken
