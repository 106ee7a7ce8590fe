"""Spanish sentences are read as a person reads them."""

import pytest

from tests.text.languages.sentences import read_table
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

# What is written, and below it what is said.
SENTENCES = """
El 14/07/1789 cayó la Bastilla.
    el catorce de julio de mil setecientos ochenta y nueve cayó la bastilla.
El 12 de octubre de 1492 llegó Colón.
    el doce de octubre de mil cuatrocientos noventa y dos llegó colón.
Nació el 03.10.1990 en Madrid.
    nació el tres de octubre de mil novecientos noventa en madrid.
El 1 de mayo es fiesta.
    el uno de mayo es fiesta.
El 1.º de enero descansamos.
    el primero de enero descansamos.
La reunión es el 05-06-2024.
    la reunión es el cinco de junio de dos mil veinticuatro.
El tren sale a las 14:30.
    el tren sale a las catorce treinta.
Escriba a info@ejemplo.es o visite ejemplo.com.mx.
    escriba a info arroba ejemplo punto es o visite ejemplo punto com punto mx.
Desayunamos a las 8:15.
    desayunamos a las ocho y cuarto.
Comemos a la 1:30.
    comemos a la una y media.
La película empieza a las 21:05.
    la película empieza a las veintiuna cero cinco.
Abre a las 9:00 y cierra a las 20:00.
    abre a las nueve y cierra a las veinte.
La tienda abre de 9:00-14:00.
    la tienda abre de nueve a catorce.
Llegó a las 3 p. m. y se fue.
    llegó a las tres pe eme y se fue.
El despertador suena a las 7:30 a. m. cada día.
    el despertador suena a las siete y media a eme cada día.
Son las 21 h en Lima.
    son las veintiuna horas en lima.
El café cuesta 3,50 €.
    el café cuesta tres euros con cincuenta céntimos.
Un pan por 1 € y un libro por 21 €.
    un pan por un euro y un libro por veintiún euros.
Solo quedan 0,80 €.
    solo quedan ochenta céntimos.
Ganó 5 millones de euros.
    ganó cinco millones de euros.
La deuda es de 3 M€.
    la deuda es de tres millones de euros.
La casa vale 1,5 millones €.
    la casa vale uno coma cinco millones de euros.
Cuesta $20 o £15.
    cuesta veinte dólares o quince libras.
Cuesta $3.50 aquí.
    cuesta tres dólares con cincuenta centavos aquí.
El 50 % de los votos.
    el cincuenta por ciento de los votos.
Subió un 2,5 % en un año.
    subió un dos coma cinco por ciento en un año.
El 21 % de la población.
    el veintiuno por ciento de la población.
Pi vale unos 3,14.
    pi vale unos tres coma catorce.
El tipo es del 0,05 %.
    el tipo es del cero coma cero cinco por ciento.
El valor exacto es 3,14159.
    el valor exacto es tres coma uno cuatro uno cinco nueve.
Madrid tiene 3.305.408 habitantes.
    madrid tiene tres millones trescientos cinco mil cuatrocientos ocho habitantes.
Hay 1 250 alumnos y 200 sillas.
    hay mil doscientos cincuenta alumnos y doscientas sillas.
Vinieron 500 personas y 301 mujeres.
    vinieron quinientas personas y trescientas una mujeres.
Tiene 21 años y 1 hijo.
    tiene veintiún años y un hijo.
Lo he visto 21 veces.
    lo he visto veintiuna veces.
Quedan 31 días y 21 noches.
    quedan treinta y un días y veintiuna noches.
Hay 1 casa y 1 coche.
    hay una casa y un coche.
La guerra de 1914-1918 fue terrible.
    la guerra de mil novecientos catorce a mil novecientos dieciocho fue terrible.
Espere 10-15 minutos.
    espere diez a quince minutos.
Lea las páginas 3 a 5.
    lea las páginas tres a cinco.
El partido terminó 3-0.
    el partido terminó tres a cero.
Hace -5 °C esta mañana.
    hace menos cinco grados celsius esta mañana.
La velocidad máxima es 120 km/h.
    la velocidad máxima es ciento veinte kilómetros por hora.
Pesa 82,5 kg.
    pesa ochenta y dos coma cinco kilogramos.
El piso tiene 75 m² y 3 habitaciones.
    el piso tiene setenta y cinco metros cuadrados y tres habitaciones.
Necesito 1 kg de harina y 250 g de azúcar.
    necesito un kilogramo de harina y doscientos cincuenta gramos de azúcar.
El camión lleva 200 t de arena.
    el camión lleva doscientas toneladas de arena.
El pico mide 3.478 m.
    el pico mide tres mil cuatrocientos setenta y ocho metros.
El archivo ocupa 1,5 GB.
    el archivo ocupa uno coma cinco gigabytes.
Corrió 100 m en 9,58 s.
    corrió cien metros en nueve coma cincuenta y ocho segundos.
La red da 230 V a 50 Hz.
    la red da doscientos treinta voltios a cincuenta hercios.
El agua hierve a 100 °C.
    el agua hierve a cien grados celsius.
Recorrió 21 km a pie.
    recorrió veintiún kilómetros a pie.
Felipe II fue rey de España.
    felipe segundo fue rey de españa.
Alfonso XIII se exilió.
    alfonso trece se exilió.
Isabel II reinó mucho tiempo.
    isabel segunda reinó mucho tiempo.
Juan Carlos I abdicó en 2014.
    juan carlos primero abdicó en dos mil catorce.
Carlos V viajó a Yuste.
    carlos quinto viajó a yuste.
El siglo XX fue convulso.
    el siglo veinte fue convulso.
Entre los siglos XIX y XX.
    entre los siglos diecinueve y veinte.
Ocurrió en el siglo V.
    ocurrió en el siglo quinto.
La II Guerra Mundial acabó en 1945.
    la segunda guerra mundial acabó en mil novecientos cuarenta y cinco.
La I República duró poco.
    la primera república duró poco.
El XV Congreso se celebra hoy.
    el decimoquinto congreso se celebra hoy.
Lea el capítulo IV del tomo II.
    lea el capítulo cuatro del tomo dos.
Vive en el 3º piso.
    vive en el tercer piso.
Es la 1ª vez que viene.
    es la primera vez que viene.
Ganó el 1.er premio.
    ganó el primer premio.
Quedó 2º en la carrera.
    quedó segundo en la carrera.
Fue la 3.ª de su clase.
    fue la tercera de su clase.
El Sr. García y la Sra. López viven allí.
    el señor garcía y la señora lópez viven allí.
La Dra. Ruiz y el Dr. Gil trabajan juntos.
    la doctora ruiz y el doctor gil trabajan juntos.
Viajó a EE. UU. en 1998.
    viajó a estados unidos en mil novecientos noventa y ocho.
Frutas, p. ej. manzanas, peras, etc.
    frutas, por ejemplo manzanas, peras, etcétera.
Véase n.º 5, pág. 12.
    véase número cinco, página doce.
César murió en el 44 a. C.
    césar murió en el cuarenta y cuatro antes de cristo.
Pérez & hijos
    pérez e hijos
2 + 2 = 4
    dos más dos igual a cuatro
10 - 3 = 7
    diez menos tres igual a siete
Llame al 91 123 45 67.
    llame al nueve uno, uno dos tres, cuatro cinco, seis siete.
Mi móvil es 612 34 56 78.
    mi móvil es seis uno dos, tres cuatro, cinco seis, siete ocho.
Mi número es +34 612 345 678.
    mi número es más tres cuatro, seis uno dos, tres cuatro cinco, seis siete ocho.
Tel. 612 345 678
    teléfono seis uno dos, tres cuatro cinco, seis siete ocho
¡Somos el #1!
    ¡somos el número uno!
El agente 007 ha vuelto.
    el agente cero cero siete ha vuelto.
Beba 1/2 litro de agua.
    beba medio litro de agua.
Quedan 3/4 del pastel.
    quedan tres cuartos del pastel.
Espere 2½ horas.
    espere dos horas y media.
La versión 2.0.1 ya está.
    la versión dos punto cero punto uno ya está.
Escriba a max@example.
    escriba a max arroba example.
Abierto 24/7.
    abierto veinticuatro siete.
Su nota es 9/10.
    su nota es nueve sobre diez.
Los años 60 fueron buenos.
    los años sesenta fueron buenos.
En 1995 tenía 15 años.
    en mil novecientos noventa y cinco tenía quince años.
En el año 2000 todo parecía posible.
    en el año dos mil todo parecía posible.
Nació en 1871 y murió en 1922.
    nació en mil ochocientos setenta y uno y murió en mil novecientos veintidós.
Vive en la c/ Mayor, 5.
    vive en la calle mayor, cinco.
Ud. tiene 2 mensajes.
    usted tiene dos mensajes.
La habitación 101 está en la 1ª planta.
    la habitación ciento uno está en la primera planta.
Según el art. 5 de la ley.
    según el artículo cinco de la ley.
Mide 1,80 m.
    mide un metro ochenta.
El 11/11/1918 a las 11:00 terminó.
    el once de noviembre de mil novecientos dieciocho a las once terminó.
El coche costó 21.000 €.
    el coche costó veintiún mil euros.
Hay 1.000.000 de razones.
    hay un millón de razones.
¿Tienes 5 minutos?
    ¿tienes cinco minutos?
La deuda es de 200 000 000 €.
    la deuda es de doscientos millones de euros.
El precio va de 5 €-10 €.
    el precio va de cinco euros a diez euros.
Cuesta 50 €/mes.
    cuesta cincuenta euros por mes.
El 31/12 bailamos.
    el treinta y uno de diciembre bailamos.
La temporada 2024/25 empieza.
    la temporada dos mil veinticuatro veinticinco empieza.
Un tablero de 4x4 cm.
    un tablero de cuatro por cuatro centímetros.
Cuesta US$5 o $1,250.
    cuesta cinco dólares o mil doscientos cincuenta dólares.
El 5 ha llegado; son 50 ha de bosque.
    el cinco ha llegado; son cincuenta hectáreas de bosque.
Vale 200 mil euros o 21 mil pesos.
    vale doscientos mil euros o veintiún mil pesos.
A las 0:15 y a las 14.30 h.
    a las cero quince y a las catorce treinta horas.
Los siglos XVI-XVII fueron de oro.
    los siglos dieciséis a diecisiete fueron de oro.
Mi móvil es 612345678.
    mi móvil es seis uno dos tres cuatro cinco seis siete ocho.
D. Juan vive en Pza. Mayor.
    don juan vive en plaza mayor.
Es la 3ra y el 2do.
    es la tercera y el segundo.
Faltan 3/4 h, no 1/2 h.
    faltan tres cuartos de hora, no media hora.
Alfonso X el Sabio.
    alfonso décimo el sabio.
Las 400 personas y los 500 libros.
    las cuatrocientas personas y los quinientos libros.
Vol. 2, cap. III
    volumen dos, capítulo tres
Los siglos XVI al XVIII.
    los siglos dieciséis al dieciocho.
Son las 10:30 a.m. en Lima.
    son las diez y media a eme en lima.
Su 50.º aniversario.
    su quincuagésimo aniversario.
El 2º Congreso duró 1 1/2 horas.
    el segundo congreso duró una hora y media.
Costó $1,250.50 por 5 000 000 000 de votos.
    costó mil doscientos cincuenta dólares con cincuenta centavos por cinco mil millones de votos.
A 2 ºC y 2º C.
    a dos grados celsius y dos grados celsius.
Hoy hace 30° a la sombra, y gira 90°.
    hoy hace treinta grados a la sombra, y gira noventa grados.
Cuestan 3,50 euros c/u, ganó 2:1, y 3 - 1 Barcelona.
    cuestan tres euros con cincuenta céntimos cada uno, ganó dos a uno, y tres a uno barcelona.
Son 3'50 € o 5 €/kg, 10 seg.
    son tres euros con cincuenta céntimos o cinco euros por kilogramo, diez segundos.
Mide 1,80 m, de 1,50 a 1,80 m, y cuesta CHF 1,250.
    mide un metro ochenta, de uno coma cincuenta a uno coma ochenta metros, y cuesta mil doscientos cincuenta francos.
Hoy hace 8°. Mañana, -5° en Ávila, o 5° bajo cero, en el 2° piso.
    hoy hace ocho grados. mañana, menos cinco grados en ávila, o cinco grados bajo cero, en el segundo piso.
Un mapa a escala 1:25.000 o 1:1000, a las 10:30.
    un mapa a escala uno a veinticinco mil o uno a mil, a las diez y media.
Washington D. C. es grande. P. ej. esto. Aprox. 30 personas.
    washington d. c. es grande. por ejemplo esto. aproximadamente treinta personas.
A 9,81 m/s² hay 10¹².
    a nueve coma ochenta y uno metros por segundo al cuadrado hay diez elevado a doce.
Son 10⁻⁶, y 5².
    son diez elevado a menos seis, y cinco al cuadrado.
A las 21.30 y a la 1.05, a las 14:30:05.
    a las veintiuna treinta y a la una y cinco, a las catorce horas, treinta minutos y cinco segundos.
Hornear a 180º. Hornear a 200º durante 5 min. El 70º aniversario.
    hornear a ciento ochenta grados. hornear a doscientos grados durante cinco minutos. el septuagésimo aniversario.
La XXI edición y el V centenario.
    la vigésima primera edición y el quinto centenario.
De los siglos XV, XVI y XVII al s. XX, en los ss. IV-VI.
    de los siglos quince, dieciséis y diecisiete al siglo veinte, en los siglos cuarto a sexto.
Juegan un 4-4-2.
    juegan un cuatro-cuatro-dos.
5 km3.
    cinco kilómetros cúbicos.
—15 años —dijo, y vinieron —2 hombres— tarde.
    - quince años -dijo, y vinieron - dos hombres- tarde.
Espere 1 ½ horas.
    espere una hora y media.
Son 200.000 personas, 500 mil mujeres y 1.200.000 casas.
    son doscientas mil personas, quinientas mil mujeres y un millón doscientas mil casas.
Son 200.000 t, 300.000 libras, 21 mil casas y 200 mil hombres.
    son doscientas mil toneladas, trescientas mil libras, veintiún mil casas y doscientos mil hombres.
El CO₂ sube.
    el co dos sube.
Hoy hace 5º, a -5º en Ávila, a 3º bajo cero, y hace 2º de Derecho.
    hoy hace cinco grados, a menos cinco grados en ávila, a tres grados bajo cero, y hace segundo de derecho.
Beatriz I, Rocky IV, la Zona II y el Plan I+D crecen.
    beatriz primera, rocky cuatro, la zona dos y el plan i más d crecen.
Moctezuma II, Agustín I, la emperatriz Teófila II y el rey Kiro III; Kiro IV abdicó.
    moctezuma segundo, agustín primero, la emperatriz teófila segunda y el rey kiro tercero; kiro cuarto abdicó.
Tema I. Introducción. Marta I. Gil.
    tema uno. introducción. marta i. gil.
Entre 200.000 y 300 mil personas, entre 21 mil y 31 mil casas.
    entre doscientas mil y trescientas mil personas, entre veintiún mil y treinta y un mil casas.
Son 200 o 300 veces, y 1 o 2 a la vez.
    son doscientas o trescientas veces, y uno o dos a la vez.
Cuesta 20,01 €, son 2/3 partes de 1 ha de tierra.
    cuesta veinte euros con un céntimo, son dos terceras partes de una hectárea de tierra.
Vive en el 3º B, va a 3.º ESO y sale a las 8:30 P.M. del nro. 5.
    vive en el tercero b, va a tercero eso y sale a las ocho y media pe eme del número cinco.
Hay 200 fotos, 200 imágenes y 200 luces, 1 agua, 1 o 2 casas y 1 o 2 días.
    hay doscientas fotos, doscientas imágenes y doscientas luces, un agua, una o dos casas y uno o dos días.
"""


@pytest.mark.parametrize(("written", "spoken"), read_table(SENTENCES))
def test_sentences_are_read_as_a_person_reads_them(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "es") == spoken
